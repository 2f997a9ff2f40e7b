"""Small runs made in memory: what the generator sent, and the rows of a faultless pipeline.

The rows are computed a second time here, straight from the contract, so that a mistake in the model shows.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from oncebench.record import FINAL, INPUT, LOG, OBSERVED, QUARANTINE, Ledger, Plan, Record
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream

SEED = 11
STARTED_US = 1_790_000_000_000_000
DRAINED = Lines(({"t_us": 1, "event": "drained"},))


@dataclass(frozen=True)
class Sent:
    """One record of the input topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class VisibleRow:
    """One visible record of the output topic; its offset is given when the log is laid out."""

    partition: int
    key: bytes | None
    value: bytes | None

    @property
    def row(self) -> dict[str, Any]:
        return dict(json.loads(self.value or b"null"))

    def changed(self, **fields: Any) -> VisibleRow:
        return replace(self, value=json.dumps({**self.row, **fields}).encode())


@dataclass(frozen=True)
class World:
    """Sessions that ran through; `rows` are the 20 rows of each session, in order."""

    sessions: int
    partitions: int
    sent: tuple[Sent, ...]
    rows: tuple[VisibleRow, ...]
    unfinished: tuple[str, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)

    def of(self, session: int) -> list[VisibleRow]:
        return list(self.rows[20 * session : 20 * session + 20])


def key_of(session: int) -> str:
    return f"{SEED:x}-{session:08d}"


def event(key: str, seq: int, value: int, scheduled_at: int, **more: Any) -> bytes:
    kind = {0: "start_event", 99: "end_event"}.get(seq, "entry_event")
    item = {"session_key": key, "seq": seq, "type": kind, "value": value, "scheduled_at": scheduled_at}
    return json.dumps(item | more).encode()


def make_world(sessions: int, partitions: int = 2, *, unfinished: int = 0, seed: int = SEED) -> World:
    """`unfinished` sessions at the end lack their last event."""
    rng = random.Random(seed)
    sent: list[Sent] = []
    rows: list[VisibleRow] = []
    offsets = [0] * partitions
    values = [[rng.randrange(1_000_000) for _ in range(100)] for _ in range(sessions)]
    for seq in range(100):
        for session in range(sessions):
            if seq == 99 and session >= sessions - unfinished:
                continue
            at = session % partitions
            body = event(key_of(session), seq, values[session][seq], scheduled_us(session, seq))
            sent.append(Sent(at, offsets[at], key_of(session).encode(), body))
            offsets[at] += 1
    for session in range(sessions - unfinished):
        rows += [
            VisibleRow(session % partitions, key_of(session).encode(), json.dumps(row).encode())
            for row in rows_of(key_of(session), values[session], scheduled_us(session, 99))
        ]
    names = tuple(key_of(session) for session in range(sessions - unfinished, sessions))
    return World(sessions, partitions, tuple(sent), tuple(rows), names)


def scheduled_us(session: int, seq: int) -> int:
    return STARTED_US + session * 100_000 + seq * 10_000


def rows_of(key: str, values: Sequence[int], ended_at: int) -> list[dict[str, Any]]:
    """The contract, once more."""
    rows = []
    for j in range(20):
        five = range(5 * j, 5 * j + 5)
        text = "".join(f"{seq}={values[seq]};" for seq in five)
        rows.append(
            {
                "session_key": key,
                "j": j,
                "events": 5,
                "total": sum(values[seq] for seq in five),
                "checksum": zlib.crc32(text.encode("ascii")),
                "ended_at": ended_at,
            }
        )
    return rows


def lay_out(rows: Iterable[VisibleRow]) -> list[tuple[int, int, VisibleRow]]:
    """Places rows in their order per partition; every third offset is a transaction's marker."""
    next_offset: dict[int, int] = {}
    placed = []
    for row in rows:
        offset = next_offset.get(row.partition, 0)
        next_offset[row.partition] = offset + (2 if offset % 3 == 1 else 1)
        placed.append((row.partition, offset, row))
    return placed


def final_table(placed: Sequence[tuple[int, int, VisibleRow]]) -> pa.Table:
    columns = {
        "partition": [partition for partition, _, _ in placed],
        "offset": [offset for _, offset, _ in placed],
        "timestamp_ms": [STARTED_US // 1000 + 5_000] * len(placed),
        "key": [row.key for *_, row in placed],
        "value": [row.value for *_, row in placed],
    }
    return pa.table(columns, FINAL)


def observed_table(placed: Sequence[tuple[int, int, VisibleRow]], seen_us: Sequence[int]) -> pa.Table:
    columns = {
        "partition": [partition for partition, _, _ in placed],
        "offset": [offset for _, offset, _ in placed],
        "append_ms": [STARTED_US // 1000 + 5_000] * len(placed),
        "seen_us": list(seen_us),
        "key": [row.key for *_, row in placed],
        "value": [row.value for *_, row in placed],
    }
    return pa.table(columns, OBSERVED)


def input_table(sent: Sequence[Sent]) -> pa.Table:
    columns = {
        "partition": [each.partition for each in sent],
        "offset": [each.offset for each in sent],
        "timestamp_ms": [0] * len(sent),
        "key": [each.key for each in sent],
        "value": [each.value for each in sent],
    }
    return pa.table(columns, INPUT)


def of_timer(world: World, session: int, **more: Any) -> dict[str, Any]:
    """The quarantine's record of a session that left the state unfinished."""
    key = key_of(session).encode()
    events = [json.loads(each.value or b"") for each in world.sent if each.key == key]
    held = {str(event["seq"]): event["value"] for event in events}
    return {"key": key, "value": json.dumps({"values": held}).encode(), "reason": "never-ended",
            "source_partition": None, "source_offset": None, **more}  # fmt: skip


def quarantine_table(entries: Sequence[dict[str, Any]]) -> pa.Table:
    rows = [{"partition": 0, "offset": at, "timestamp_ms": 0, **entry} for at, entry in enumerate(entries)]
    return pa.Table.from_pylist(rows, QUARANTINE)


def stretch(partition: int, offset: int, last_offset: int, **more: Any) -> dict[str, Any]:
    """A full stretch of the output's log; by default of producer 1, in a transaction."""
    fields = {"producer": 1, "generation": 1, "transactional": True, "marker": None, **more}
    return {"partition": partition, "offset": offset, "last_offset": last_offset, "records": last_offset - offset + 1,
            **fields}  # fmt: skip


def log_of(*stretches: dict[str, Any]) -> Stream:
    """The output's log, read to its end."""
    return Stream(pa.Table.from_pylist(list(stretches), LOG), complete=True)


def ledger_of(world: World) -> Ledger:
    """Everything planned was sent and acknowledged, except what unfinished sessions lack."""
    place = {(each.key, json.loads(each.value or b"")["seq"]): each for each in world.sent}
    planned = [(session, seq) for session in range(world.sessions) for seq in range(100)]
    found = [place.get((key_of(session).encode(), seq)) for session, seq in planned]
    scheduled = [scheduled_us(session, seq) for session, seq in planned]
    return Ledger(
        session=np.array([session for session, _ in planned], np.uint32),
        seq=np.array([seq for _, seq in planned], np.uint8),
        scheduled_us=np.array(scheduled, np.int64),
        sent_us=np.array([0 if each is None else at + 1 for each, at in zip(found, scheduled, strict=True)], np.int64),
        acked_us=np.array([0 if each is None else at + 2 for each, at in zip(found, scheduled, strict=True)], np.int64),
        partition=np.array([-1 if each is None else each.partition for each in found], np.int32),
        offset=np.array([-1 if each is None else each.offset for each in found], np.int64),
    )


def make_record(world: World, rows: Iterable[VisibleRow] | None = None, **parts: Any) -> Record:
    """The record of a drained run of `world` with the visible `rows`; by default all of them.

    The observer saw nothing, unless `observed` is given; `parts` replace fields of the record.
    """
    placed = lay_out(world.rows if rows is None else rows)
    committed = {str(p): sum(each.partition == p for each in world.sent) for p in range(world.partitions)}
    ends = {p: 1 + max([offset for at, offset, _ in placed if at == p], default=-1) for p in {at for at, *_ in placed}}
    record = Record(
        path=Path("nowhere"),
        cell={},
        plan=Plan(SEED, world.sessions, 100 * world.sessions, "input", STARTED_US),
        ledger=ledger_of(world),
        input=Stream(input_table(world.sent), complete=True),
        final=Stream(final_table(placed), complete=True),
        observed=Stream(OBSERVED.empty_table(), complete=True),
        quarantine=Stream(QUARANTINE.empty_table(), complete=True),
        ends={"output": {str(p): {"lso": end, "hw": end} for p, end in ends.items()}, "final_complete": True},
        progress=Lines(({"kind": "batch", "batch": 0, "end_offsets": committed},)),
        timeline=DRAINED,
    )
    return replace(record, **parts)


def committed_to(ends: dict[int, int]) -> Lines:
    return Lines(({"kind": "batch", "batch": 0, "end_offsets": {str(p): end for p, end in ends.items()}},))
