"""Runs a user's reader and setup: `python -m oncebench.sinks.black_box.serve TARGET`.

TARGET is a target as JSON, see `oncebench.sinks.black_box.target`. Each line on standard input is a command:

- `check` loads all functions, and checks their parameters;
- `setup` calls the set-up, if there is one;
- `read` calls the reader.

The answer to each command is one line of JSON on standard output: `{"rows": [..]}`, or `{"mistake": text}` if a
function cannot be used, or `{"error": text}` if a function raised.

Promise: a user's function that crashes, hangs or prints disturbs only this process.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import orjson

from oncebench.sinks.black_box.target import UserMistake, enter, load


def main(target: Mapping[str, Any]) -> None:
    """Answers commands until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the user's functions print must not mix with the answers
    enter(target)
    commands = {"check": _check, "setup": _setup, "read": _read}
    for line in sys.stdin:
        try:
            answer = orjson.dumps(commands[line.strip()](target), default=str)
        except UserMistake as mistake:
            answer = _packed("mistake", str(mistake))
        except Exception as error:
            text = str(error).strip()
            answer = _packed("error", f"{type(error).__name__}: {text.splitlines()[0] if text else 'no text'}")
        answers.write(answer + b"\n")
        answers.flush()


def _packed(kind: str, text: str) -> bytes:
    """Packs a text of the user's code, which may have characters that JSON cannot contain."""
    return orjson.dumps({kind: text.encode("utf-8", "backslashreplace").decode()})


def _check(target: Mapping[str, Any]) -> dict[str, Any]:
    """Loads every function, and checks that it can be called as a run calls it."""
    for role, arguments, how in (("write", 2, "(df, batch_id)"), ("read", 0, "()"), ("setup", 0, "()")):
        if target[role]:
            _takes(load(target[role], target["cwd"]), arguments, f"{target[role]}{how}")
    return {"rows": []}


def _takes(function: Callable[..., Any], arguments: int, called: str) -> None:
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError as error:
        raise UserMistake(f"a run calls {called}, which fails: {error}. Change the function's parameters.") from None
    except ValueError:  # written in C, without a signature
        return


def _setup(target: Mapping[str, Any]) -> dict[str, Any]:
    if target["setup"]:
        load(target["setup"], target["cwd"])()
    return {"rows": []}


def _read(target: Mapping[str, Any]) -> dict[str, Any]:
    found = load(target["read"], target["cwd"])()
    if not isinstance(found, Iterable) or isinstance(found, (str, bytes, Mapping)):
        raise UserMistake(
            f"{target['read']} returned {type(found).__name__}, not rows. Return or yield one dict per row; a pyarrow "
            "table returns them with to_pylist()."
        )
    columns: list[str] = target["columns"]
    return {"rows": [_row(each, columns, target["read"]) for each in found]}


def _row(row: object, columns: list[str], reader: str) -> list[Any]:
    """Returns the values of these columns; other columns are the user's own."""
    fields = _fields(row)
    if fields is None:
        raise UserMistake(
            f"{reader} returned a row of type {type(row).__name__}. Return each row as a dict, with the names of the "
            "columns as keys."
        )
    missing = [name for name in columns if name not in fields]
    if missing:
        raise UserMistake(
            f"a row of {reader} lacks {', '.join(missing)}; it has {', '.join(map(str, fields)) or 'no column'}. "
            f"Return all columns that the sink gets: {', '.join(columns)}."
        )
    return [_plain(fields[name]) for name in columns]


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
    """Returns a number as an `int` where its value is whole: databases return Decimal, pandas float or numpy's."""
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, (float, Decimal)):
        return int(value) if value == value and value % 1 == 0 else value  # not a NaN
    if hasattr(value, "item"):
        return _plain(value.item())
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    main(orjson.loads(sys.argv[1]))
