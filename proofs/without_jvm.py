"""A stand-in for the JVM's part of delivery: encoding, quarantine column and row hash.

The hash differs from Spark's. Digests are only compared with each other, so any hash of all columns will do.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oncebench.delivery import quarantine
from oncebench.delivery.digest import HASH
from oncebench.sinks.files.formats import LINE
from pipeline.sessions import EVENTS_PER_ROW


def as_lines(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as JSON lines, as `formats.JSON_LINES.encode` makes them in the JVM."""
    lines = [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows.to_pylist()]
    return pa.RecordBatch.from_pydict({LINE: pa.array(lines, pa.string())})


def as_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows unchanged."""
    return rows


def deliverable(encoded: pa.RecordBatch, rejected: pa.Array | None = None) -> pa.RecordBatch:
    """Encoded rows with the columns that the delivery code removes again."""
    columns: dict[str, Any] = dict(zip(encoded.schema.names, encoded.columns, strict=True))
    if rejected is not None:
        columns[quarantine.COLUMN] = rejected
    columns[HASH] = pa.array([_hash(row) for row in encoded.to_pylist()], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def exploded(made: Any) -> list[dict[str, Any]]:
    """Returns the rows of a session or a rejected record, as `pipeline.query` makes them."""
    rejected = {name: made[name] for name in quarantine.FIELDS}
    row = {"session_key": made["session_key"], "ended_at": made["ended_at"], **rejected}
    if made["totals"] is None:
        return [row]
    parts = enumerate(zip(made["totals"], made["checksums"], strict=True))
    return [{**row, "j": j, "events": EVENTS_PER_ROW, "total": total, "checksum": crc} for j, (total, crc) in parts]


def rejected_column(rows: pa.RecordBatch) -> pa.Array:
    """The quarantine column of rows that have the columns `quarantine.FIELDS`."""
    fields = [rows.column(name) for name in quarantine.FIELDS]
    accepted = pc.is_null(rows.column("reason"))
    return pa.StructArray.from_arrays(fields, names=list(quarantine.FIELDS), mask=accepted)


def _hash(row: dict[str, Any]) -> int:
    text = json.dumps(row, default=repr).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)
