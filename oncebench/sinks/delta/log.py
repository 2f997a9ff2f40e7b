"""Reads a Delta table's log without Spark: columns, transactions, and the files of a commit.

Promise: only complete commits are read. What can go wrong: the log was cleaned up and a commit is gone (`LookupError`);
the log is damaged or has a newer protocol (`readable` converts these errors).

Source: Delta's protocol (PROTOCOL.md of delta-io/delta), by delta-rs and by the log's own files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql.types import StructType

from oncebench.delivery import quarantine
from oncebench.delivery.errors import PipelineError

# Spark's names of types -> different names in Delta's schema.
_RENAMED = {"int": "integer", "bigint": "long", "tinyint": "byte", "smallint": "short"}
# How long a table keeps the newest txnVersion of a txnAppId; Delta keeps it for ever by default.
RETENTION = "delta.setTransactionRetentionDuration"
# A part of a checkpoint: its version, its number, and the number of parts.
_PART = re.compile(r"(\d+)\.checkpoint\.\d{10}\.(\d{10})\.parquet")


def column_difference(table: Path, wanted: Mapping[str, str]) -> str | None:
    """Describes how a table's columns differ from the `wanted` ones (name -> type).

    Returns None if they fit, or if there is no table. Delta fills further columns of the table with null. So they may
    be there before the version of the job that writes them.

    Nested types are compared by column name only: Delta checks them when it writes.
    """
    if not DeltaTable.is_deltatable(str(table)):
        return None
    found = DeltaTable(str(table))
    columns = json.loads(found.schema().to_json())["fields"]
    types = {column["name"]: column["type"] for column in columns}
    for name, kind in wanted.items():
        if name not in types:
            return f"column {name!r} is missing and must be {kind!r}"
        if isinstance(types[name], str) and types[name] != kind:
            return f"column {name!r} is {types[name]!r} and must be {kind!r}"
    for column in columns:
        if column["name"] not in wanted and not column["nullable"]:
            return f"column {column['name']!r} takes no null and is not a column of the rows"
    for name in found.metadata().partition_columns:
        return f"it is partitioned by column {name!r}, and must not be partitioned"
    return None


def table_id(table: Path) -> dict[str, str]:
    """Returns the id that Delta gave the table when it was made; empty if there is no table."""
    return {"table": str(DeltaTable(str(table)).metadata().id)} if DeltaTable.is_deltatable(str(table)) else {}


def columns_of(schema: StructType) -> dict[str, str]:
    """Returns the columns of rows, with Delta's names of their types."""
    types = {field.name: field.dataType.simpleString() for field in schema if field.name != quarantine.COLUMN}
    return {name: _RENAMED.get(kind, kind) for name, kind in types.items()}


def transactions(log: Path) -> dict[str, int]:
    """Returns each txnAppId's newest txnVersion.

    It is read from the newest complete checkpoint and later commits.
    """
    checkpoints = _complete([path for form in ("parquet", "json") for path in log.glob(f"[0-9]*.checkpoint*.{form}")])
    newest = max(map(version_of, checkpoints), default=-1)
    found: dict[str, int] = {}
    for path in checkpoints:
        if version_of(path) == newest:
            found |= {entry["appId"]: entry["version"] for entry in _entries(path)}
    for path in commits(log):
        if version_of(path) > newest:
            found |= {action["txn"]["appId"]: action["txn"]["version"] for action in actions(path, "txn")}
    return found


def _complete(checkpoints: Sequence[Path]) -> list[Path]:
    """Returns the checkpoints without those that lack a part.

    The writer of such a checkpoint has died, or has not finished.
    """
    parts = {path: (match[1], int(match[2])) for path in checkpoints if (match := _PART.fullmatch(path.name))}
    there = Counter(parts.values())
    return sorted(path for path in checkpoints if path not in parts or there[parts[path]] == parts[path][1])


def _entries(checkpoint: Path) -> list[dict[str, Any]]:
    """Returns the transaction entries of a checkpoint of the log, of any form.

    A V2 checkpoint has a random id in its name and may be JSON. Its sidecars hold data files only.
    """
    if checkpoint.suffix == ".json":
        return [action["txn"] for action in actions(checkpoint, "txn")]
    if "txn" not in pq.read_schema(checkpoint).names:
        return []
    found: list[dict[str, Any]] = pq.read_table(checkpoint, columns=["txn"])["txn"].drop_null().to_pylist()
    return found


def settings_of(table: Path) -> dict[str, str]:
    """Returns the table's own settings (TBLPROPERTIES); empty if there is no table."""
    return dict(DeltaTable(str(table)).metadata().configuration) if DeltaTable.is_deltatable(str(table)) else {}


def unsuitable(table: Path) -> str | None:
    """Returns the table feature that prevents a comparison of a replay; None if there is none."""
    mode = settings_of(table).get("delta.columnMapping.mode", "none")
    if mode != "none":
        return (
            f"its columns have other names in the data files (delta.columnMapping.mode = {mode}), and a replay is "
            "compared with the data files"
        )
    return None


def commits(log: Path) -> list[Path]:
    """Returns the commits of a table's log that were not cleaned up, oldest first."""
    return sorted(path for path in log.glob("*.json") if path.stem.isdigit())


def files_of(log: Path, app_id: str, batch: int) -> list[str]:
    """Returns the names of the data files that the commit with the entry (app_id, batch) added.

    Raises:
        LookupError: the log has no such commit, or it was cleaned up.
    """
    for path in reversed(commits(log)):
        entry = {"appId": app_id, "version": batch}
        if any(entry.items() <= action["txn"].items() for action in actions(path, "txn")):
            return [unquote(action["add"]["path"]) for action in actions(path, "add")]
    raise LookupError(f"no commit of batch {batch} in {log}")


def newest_kept(log: Path, app_id: str, newest: int) -> int:
    """Returns the newest batch of an app_id that no RESTORE of the table has taken back.

    RESTORE keeps the entries of the transactions that it takes back, so `newest` alone does not show it.
    """
    taken_back: tuple[int, int] | None = None  # by a RESTORE: versions after the first one, before the second one
    log_of_table = commits(log)
    for at in reversed(range(len(log_of_table))):
        path = log_of_table[at]
        version = version_of(path)
        if any(info["commitInfo"].get("operation") == "RESTORE" for info in actions(path, "commitInfo")):
            target = restored_to(log_of_table[: at + 1])
            if target is not None and (taken_back is None or version <= taken_back[0]):
                taken_back = target, version
        for action in actions(path, "txn"):
            if action["txn"]["appId"] == app_id and (taken_back is None or version <= taken_back[0]):
                return int(action["txn"]["version"])
    return newest if taken_back is None else -1


def restored_to(log_of_table: Sequence[Path]) -> int | None:
    """Returns the version that the last of these commits, a RESTORE, has restored.

    None: the log does not show it.

    A RESTORE names a version or a time. The time is compared with clocks and time zones of other machines, so the
    files decide then: the version is the newest one with the same files as the RESTORE.
    """
    restore = log_of_table[-1]
    (info, *_) = actions(restore, "commitInfo")
    named = str(info["commitInfo"].get("operationParameters", {}).get("version"))
    if named.isdecimal():
        return int(named)
    wanted = _files(restore, "add"), _files(restore, "remove")
    come: set[str] = set()  # files of the version that the newest one lacks, and the other way round
    gone: set[str] = set()
    for path in reversed(log_of_table[:-1]):
        if (come, gone) == wanted:
            return version_of(path)
        added, removed = _files(path, "add"), _files(path, "remove")
        come, gone = (come - added) | (removed - gone), (gone - removed) | (added - come)
    return None


def _files(commit: Path, kind: str) -> set[str]:
    """Returns the data files of `add` or `remove` actions, each with its deletion vector."""
    found = (action[kind] for action in actions(commit, kind))
    return {json.dumps([file["path"], file.get("deletionVector")], sort_keys=True) for file in found}


def row_count(files: Sequence[Path]) -> int:
    """Returns the number of rows in data files, from their footers."""
    return sum(pq.read_metadata(file).num_rows for file in files)


def version_of(path: Path) -> int:
    return int(path.name.split(".", 1)[0])


def actions(commit: Path, kind: str) -> Iterator[dict[str, Any]]:
    for line in commit.read_bytes().splitlines():
        action = json.loads(line)
        if kind in action:
            yield action


@contextmanager
def readable(kind: type[PipelineError], table: Path, advice: str) -> Iterator[None]:
    """Converts errors of delta-rs, of the disk or of a damaged log to `kind`."""
    try:
        yield
    except (DeltaError, ValueError, OSError, pa.ArrowException) as error:
        lines = str(error).splitlines() or [type(error).__name__]  # a stack follows the first line
        raise kind(f"the Delta table {table} cannot be read: {lines[0]}. {advice}") from error
