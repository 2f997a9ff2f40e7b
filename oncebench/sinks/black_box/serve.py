"""Runs a user's reader and setup: `python -m oncebench.sinks.black_box.serve TARGET`.

TARGET is a target as JSON, see `oncebench.sinks.black_box.target`. Each line on standard input is a command:

- `check names` refuses files that hide other modules, see `oncebench.sinks.black_box.names`;
- `check write`, `check read` and `check setup` load a function, and check that a run can call it;
- `setup` calls the set-up, if there is one;
- `read` calls the reader.

The answer to each command is one line of JSON on standard output: `{"rows": [..]}`, or `{"mistake": text}` if a
function cannot be used, or `{"error": text}` if a function raised.

Promise: a user's function that crashes, hangs or prints disturbs only this process. A function that reads standard
input finds it empty.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson

from oncebench.sinks.black_box.calls import refuse_uncallable, refuse_unfinished
from oncebench.sinks.black_box.names import UserMistake, folders_of_path, refuse_taken_names
from oncebench.sinks.black_box.target import enter, load


def main(target: Mapping[str, Any]) -> None:
    """Answers commands until standard input ends."""
    # The user's functions must not take the commands, and what they print must not mix with the answers.
    commands, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    enter(target)
    for line in commands:
        name, _, role = line.strip().partition(" ")
        try:
            answer = orjson.dumps(_COMMANDS[name](target, role), default=str)
        except UserMistake as mistake:
            answer = _packed("mistake", str(mistake))
        except (Exception, SystemExit) as error:
            text = str(error).strip()
            answer = _packed("error", f"{type(error).__name__}: {text.splitlines()[0] if text else 'no text'}")
        answers.write(answer + b"\n")
        answers.flush()


def _packed(kind: str, text: str) -> bytes:
    """Packs a text of the user's code, which may have characters that JSON cannot contain."""
    return orjson.dumps({kind: text.encode("utf-8", "backslashreplace").decode()})


def _check(target: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Loads a function, and checks that a run can call it."""
    if role == "names":
        refuse_taken_names(Path(target["cwd"]), *folders_of_path())
    elif target[role]:
        refuse_uncallable(load(target[role], target["cwd"]), target[role], role)
    return {"rows": []}


def _setup(target: Mapping[str, Any], _role: str) -> dict[str, Any]:
    if target["setup"]:
        refuse_unfinished(load(target["setup"], target["cwd"])(), target["setup"])
    return {"rows": []}


def _read(target: Mapping[str, Any], _role: str) -> dict[str, Any]:
    found = load(target["read"], target["cwd"])()
    if not isinstance(found, Iterable) or isinstance(found, (str, bytes, Mapping)):
        raise UserMistake(
            f"{target['read']} returned {type(found).__name__}, not rows. Return or yield one dict per row; a pyarrow "
            "table returns them with to_pylist()."
        )
    columns: list[str] = target["columns"]
    rows = [_named_fields(each, target["read"]) for each in found]
    _refuse_incomplete(rows, columns, target["read"])
    return {"rows": [[_plain(row.get(name)) for name in columns] for row in rows]}


def _named_fields(row: object, reader: str) -> Mapping[str, Any]:
    fields = _fields(row)
    if fields is None:
        raise UserMistake(
            f"{reader} returned a row of type {type(row).__name__}. Return each row as a dict, with the names of the "
            "columns as keys."
        )
    return fields


def _refuse_incomplete(rows: Sequence[Mapping[str, Any]], columns: list[str], reader: str) -> None:
    """Refuses rows if none of them has all columns.

    If another row has them, the reader is right, and the sink holds a row that is not whole: null stands for what it
    lacks, and the audit judges it.

    Raises:
        UserMistake: the reader returns too few columns.
    """
    lacks = [[name for name in columns if name not in row] for row in rows]
    if lacks and all(lacks):
        raise UserMistake(
            f"a row of {reader} lacks {', '.join(lacks[0])}; it has {', '.join(map(str, rows[0])) or 'no column'}. "
            f"Return all columns that the sink gets: {', '.join(columns)}."
        )


def _fields(row: object) -> Mapping[str, Any] | None:
    if isinstance(row, Mapping):
        return row
    for method in ("asDict", "_asdict"):  # a Row of PySpark, a named tuple
        if hasattr(row, method):
            made: Mapping[str, Any] = getattr(row, method)()
            return made
    if hasattr(row, "keys"):  # sqlite3.Row
        return {name: row[name] for name in row.keys()}  # type: ignore[index]  # noqa: SIM118  no Mapping
    return None


def _plain(value: Any) -> Any:
    """Returns a number as an `int` if its value is whole.

    Databases return Decimal. pandas returns float or numbers of numpy.
    """
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, (float, Decimal)):
        return int(value) if value == value and value % 1 == 0 else value  # not a NaN
    if hasattr(value, "item"):
        return _plain(value.item())
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_COMMANDS = {"check": _check, "setup": _setup, "read": _read}


if __name__ == "__main__":
    main(orjson.loads(sys.argv[1]))
