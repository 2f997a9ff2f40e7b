"""A small run of the workload `records` in memory.

Its rows are computed from the contract once more. The file has eight lines of different form. It is sent twice, after a
warm-up of three records.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from oncebench.record import Ledger, Plan, Record
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from tests.unit.audit.audit_world import SEED, STARTED_US, Sent, VisibleRow, World, input_table, make_record

PARTITIONS = 2
TEXTS = (
    '{"customer": "anna", "total": 12.50}',
    '{"customer": "anna", "total": 12.50}',  # an equal record is a record of its own
    '{"customer": "Zoë", "note": "naïve 日本 \U0001f600"}',
    '{"total": 1}',
    '{ "customer" : "a\\"b\\\\c/d", "note": "tab\\tline\\nnul\\u0000 \\ud83d" }',
    '{"customer": "del\x7f\u2028"}',
    '{"customer": "' + "x" * 5000 + '"}',
    "{}",
)
PASSES = 2
EVENTS = PASSES * len(TEXTS)
WARM_UP_LOAD = "8000000000000000"


def due_us(n: int) -> int:
    return STARTED_US + n * 10_000


def event(name: str, load: str, n: int, scheduled_at: int, record: str, **more: Any) -> bytes:
    fields = {"id": name, "load": load, "n": n, "scheduled_at": scheduled_at, "record": record}
    return json.dumps(fields | more, ensure_ascii=False, separators=(",", ":")).encode()


def name_of(n: int) -> str:
    number, line = divmod(n, len(TEXTS))
    return f"{line + 1}" + (f"@{number + 1}" if number else "")


def all_sent() -> Iterator[Sent]:
    offsets = [0] * PARTITIONS
    warm_up = [event(f"w0-{n + 1}", WARM_UP_LOAD, n, STARTED_US - 5_000_000, TEXTS[n]) for n in range(3)]
    load = [event(name_of(n), f"{SEED:x}", n, due_us(n), TEXTS[n % len(TEXTS)]) for n in range(EVENTS)]
    for number, body in enumerate([*warm_up, *load]):
        partition = number % PARTITIONS
        yield Sent(partition, offsets[partition], None if number % 5 == 0 else b"anna", body)
        offsets[partition] += 1


SENT = tuple(all_sent())


def row_of(name: str, record: str, scheduled_at: int) -> VisibleRow:
    content = record.encode()
    row = {"session_key": name, "j": 0, "events": 1, "total": len(content),
           "checksum": int(hashlib.sha256(content).hexdigest()[:15], 16), "ended_at": scheduled_at,
           "record": record}  # fmt: skip
    value = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
    return VisibleRow(zlib.crc32(name.encode()) % PARTITIONS, name.encode(), value)


def right_rows(sent: Sequence[Sent] = SENT) -> list[VisibleRow]:
    """The rows of a faultless pipeline."""
    events = [json.loads(each.value or b"") for each in sent]
    return [row_of(each["id"], each["record"], each["scheduled_at"]) for each in events]


def ledger() -> Ledger:
    place = {json.loads(each.value or b"")["n"]: each for each in SENT[3:]}
    numbers = np.arange(EVENTS)
    return Ledger(
        session=(numbers // 100).astype(np.uint32),
        seq=(numbers % 100).astype(np.uint8),
        scheduled_us=np.array([due_us(n) for n in range(EVENTS)], np.int64),
        sent_us=np.array([due_us(n) + 1 for n in range(EVENTS)], np.int64),
        acked_us=np.array([due_us(n) + 2 for n in range(EVENTS)], np.int64),
        partition=np.array([place[n].partition for n in range(EVENTS)], np.int32),
        offset=np.array([place[n].offset for n in range(EVENTS)], np.int64),
    )


def records_record(rows: Iterable[VisibleRow] | None = None, sent: Sequence[Sent] = SENT, **parts: Any) -> Record:
    """The record of a drained run."""
    world = World(1, PARTITIONS, (), ())
    ends = {str(p): sum(each.partition == p for each in sent) for p in range(PARTITIONS)}
    line = {"kind": "batch", "batch": 0, "t_us": STARTED_US, "start_offsets": dict.fromkeys(ends, 0),
            "end_offsets": ends}  # fmt: skip
    named = {"cell": {"cell": {"workload": "records"}}, "ledger": ledger(), "progress": Lines((line,)),
             "plan": Plan(SEED, 1, EVENTS, "input", STARTED_US),
             "input": Stream(input_table(sent), complete=True)}  # fmt: skip
    return make_record(world, right_rows() if rows is None else rows, **{**named, **parts})
