"""A small run of the workload `windows` in memory.

Its rows are computed from the contract once more. Two sessions are late with one event each. Two closing events follow,
each in a batch of its own.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from oncebench.record import Ledger, Record
from oncebench.record.json_lines import Lines
from tests.unit.audit.audit_world import (
    STARTED_US,
    Sent,
    VisibleRow,
    World,
    event,
    key_of,
    ledger_of,
    make_record,
    make_world,
    scheduled_us,
)

SESSIONS, PARTITIONS = 6, 2
LATE = ((0, 50), (3, 50))  # (session, seq)
HOUR_US = 3_600_000_000
WARM_UP, CLOSING = "8000000000000000-00000000", ("8000000000000004-00000000", "8000000000000005-00000000")
LAST_US = scheduled_us(SESSIONS - 1, 99)
CLOSING_US = (LAST_US + 5_000_000, LAST_US + 9_000_000)  # the second one closes the window of the first by its time
WINDOW_US = 100_000


def event_time(session: int, seq: int) -> int:
    return scheduled_us(session, seq) - (HOUR_US if (session, seq) in LATE else 0)


def all_sent() -> tuple[list[Sent], list[dict[int, int]]]:
    """The input topic, and the ends of the five batches that read it."""
    sent: list[Sent] = []
    ends = [0] * PARTITIONS
    of_batches: list[dict[int, int]] = []

    def send(partition: int, key: str, body: bytes) -> None:
        sent.append(Sent(partition, ends[partition], key.encode(), body))
        ends[partition] += 1

    for seq in range(3):
        send(1, WARM_UP, event(WARM_UP, seq, 7 + seq, STARTED_US - 5_000_000))
    of_batches.append(dict(enumerate(ends)))
    plain = [each for each in make_world(SESSIONS, PARTITIONS).sent if each.key is not None]
    for number, each in enumerate(plain):
        fields = json.loads(each.value or b"")
        session = int(fields["session_key"][-8:])
        body = event(key_of(session), fields["seq"], fields["value"], event_time(session, fields["seq"]))
        send(each.partition, key_of(session), body)
        if number == len(plain) // 2:
            of_batches.append(dict(enumerate(ends)))
    of_batches.append(dict(enumerate(ends)))
    for key, at in zip(CLOSING, CLOSING_US, strict=True):
        send(0, key, event(key, 0, 1, at))
        of_batches.append(dict(enumerate(ends)))
    return sent, of_batches


SENT, ENDS = all_sent()


def row_of(key: str, start_us: int, events: Iterable[tuple[int, int]], size_us: int = WINDOW_US) -> VisibleRow:
    """The row of a window with these (seq, value)."""
    pairs = list(events)
    name = f"{key}@{start_us // 1000}"
    checksum = sum((seq + 1) * (value + 1) for seq, value in pairs)
    row = {"session_key": name, "j": 0, "events": len(pairs), "total": sum(value for _, value in pairs),
           "checksum": checksum, "ended_at": start_us + size_us}  # fmt: skip
    return VisibleRow(zlib.crc32(key.encode()) % PARTITIONS, name.encode(), json.dumps(row).encode())


def windows_of(
    sent: Iterable[Sent] = SENT, size_us: int = WINDOW_US, shift_us: int = 0
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """The (seq, value) of every window, by key and start."""
    found = defaultdict(list)
    for each in sent:
        fields = json.loads(each.value or b"")
        start = (fields["scheduled_at"] - shift_us) // size_us * size_us + shift_us
        found[fields["session_key"], start].append((fields["seq"], fields["value"]))
    return dict(found)


def is_expected(key: str, start_us: int) -> bool:
    return key not in CLOSING and start_us > STARTED_US - HOUR_US // 2


def right_rows(windows: dict[tuple[str, int], list[tuple[int, int]]] | None = None, **more: Any) -> list[VisibleRow]:
    """The rows of a faultless pipeline."""
    windows = windows_of() if windows is None else windows
    return [row_of(key, start, events, **more) for (key, start), events in windows.items() if is_expected(key, start)]


def windows_ledger(world: World) -> Ledger:
    ledger = ledger_of(world)
    times = [
        event_time(session, seq) for session, seq in zip(ledger.session.tolist(), ledger.seq.tolist(), strict=True)
    ]
    return replace(ledger, scheduled_us=np.array(times, np.int64))


def batch_lines(ends: Iterable[dict[int, int]] = ENDS) -> Lines:
    lines, before = [], dict.fromkeys(range(PARTITIONS), 0)
    for number, end in enumerate(ends):
        offsets = [{str(partition): at for partition, at in each.items()} for each in (before, end)]
        lines.append({"kind": "batch", "batch": number, "t_us": STARTED_US + number, "start_offsets": offsets[0],
                      "end_offsets": offsets[1]})  # fmt: skip
        before = end
    return Lines(tuple(lines))


def windows_record(rows: Iterable[VisibleRow] | None = None, sent: Iterable[Sent] = SENT, **parts: Any) -> Record:
    """The record of a drained run."""
    world = World(SESSIONS, PARTITIONS, tuple(sent), ())
    named = {"cell": {"cell": {"workload": "windows"}}, "ledger": windows_ledger(world), "progress": batch_lines()}
    return make_record(world, right_rows() if rows is None else rows, **{**named, **parts})
