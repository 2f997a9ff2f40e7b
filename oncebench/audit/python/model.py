"""The expected output: a reference model, fed from the re-read input topic.

Promise: the expected rows depend on the input records and on the time-outs that the record proves
(`history.timeouts`). Records count per session key, in the order in which the pipeline read them
(`history.reading_order`). There is no clock, no Spark, and no code shared with the pipeline, so one mistake cannot hide
in both. Of several valid events with one seq the first one counts. The last of the 100 first events finishes its
session. Of several finished sessions with one key the first one counts.

What can go wrong: the input read was cut short. Then finished sessions look unfinished; callers check
`Stream.complete`.

All of it is arithmetic on columns, because a topic has millions of events. A column has the smallest type that fits.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncebench.audit.python.events import CODE, REASONS, SEQS, VALID, Columns, read_events
from oncebench.audit.python.history.evidence import NO_EVIDENCE, Evidence
from oncebench.audit.python.history.reading_order import in_several_partitions, reorder
from oncebench.audit.python.history.timeouts import divide
from oncebench.audit.python.records import (
    Bools,
    Ints,
    by_appearance,
    in_position_order,
    keep,
    offsets_of,
    partitions_of,
    unpack,
)
from oncebench.record import Record

ROWS = 20  # output rows of a session
EVENTS_PER_ROW = SEQS // ROWS
# The texts of a session's 20 checksums, one line each.
_CHECKSUM_TEXTS = b"\n".join(
    "".join(f"{seq}=%d;" for seq in range(first, first + EVENTS_PER_ROW)).encode()
    for first in range(0, SEQS, EVENTS_PER_ROW)
)
STEP = 1_000  # sessions whose values are Python objects at a time: 4 MB


@dataclass(frozen=True)
class Events:
    """Events with correct fields, in reading order, also those that their session refuses."""

    position: Ints
    key: npt.NDArray[np.integer]  # index into `Expected.keys`
    seq: npt.NDArray[np.integer]
    scheduled_us: Ints


@dataclass(frozen=True)
class Invalid:
    """Events that must be in quarantine, by (partition, offset); `reason` indexes `REASONS`."""

    position: Ints
    reason: npt.NDArray[np.integer]

    def counts(self) -> dict[str, int]:
        """Returns the number of invalid events by reason, without reasons that do not occur."""
        counts = np.bincount(self.reason, minlength=len(REASONS))
        return {reason: int(count) for reason, count in zip(REASONS, counts, strict=True) if count}


@dataclass(frozen=True)
class Parts:
    """Which row each event belongs to, where the session and seq of an event do not say it.

    Attributes:
        names: of all sessions, finished or not; the events of a row have one of them.
        session: of each event in `Expected.events`, index into `names`.
        events: [sessions, rows] The number of events of each expected row.
        late: how many events the pipeline must leave out, because they came too late; None: none can be late.
    """

    names: list[str]
    session: Ints
    events: Ints
    late: int | None = 0


@dataclass(frozen=True)
class Expected:
    """The expected rows: arrays [finished sessions, 20], in the order in which sessions finish.

    Another workload has something else in place of sessions, with its own number of rows each.

    Attributes:
        key: index into `names`.
        last_partition, last_offset: the position of the event that finished the session.
        unfinished: the number of events so far, by session key; of the last one if there are several.
        never_ended: (key, text) of the records of timers that the quarantine may hold (`history.evidence`).
        earlier: only for keys in several partitions, (partition, offset) of the session's last events in the others.
        with_record: whether a row also has a record, whose bytes `total` counts and `checksum` digests.
    """

    session_keys: list[str]
    key: Ints
    total: Ints
    checksum: Ints
    ended_at: Ints  # epoch µs
    last_partition: Ints
    last_offset: Ints
    events: Events
    invalid: Invalid
    keys: list[str]  # every key with at least one event with correct fields, by first appearance
    unfinished: dict[str, int] = field(default_factory=dict)
    never_ended: Set[tuple[bytes | None, bytes | None]] = frozenset()
    earlier: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    parts: Parts | None = None
    with_record: bool = False

    @property
    def rows(self) -> int:
        """The number of rows of a session."""
        return int(self.total.shape[1])

    @property
    def names(self) -> list[str]:
        """Every session that the input has, finished or not."""
        return self.keys if self.parts is None else self.parts.names

    def row_of_events(self) -> Ints:
        """Returns the row of each event, as its session's place in `names` * rows + j."""
        if self.parts is not None:
            return self.parts.session * self.rows
        return self.events.key.astype(np.int64) * ROWS + self.events.seq // EVENTS_PER_ROW

    def events_of_rows(self, places: Ints) -> Ints | int:
        """Returns the number of events of these expected rows (session * rows + j)."""
        return EVENTS_PER_ROW if self.parts is None else self.parts.events.reshape(-1)[places]

    @property
    def records(self) -> int:
        """The number of input records, valid or not."""
        by_themselves = np.isin(self.invalid.reason, (CODE["after-end"], CODE["repeated-seq"]), invert=True)
        return len(self.events.position) + int(by_themselves.sum())


def expected_of(record: Record) -> Expected:
    """Returns the expected output of a record of the workload `sessions`."""
    return expected_output(record.input.table, record.input.release, Evidence.of(record))


def expected_output(table: pa.Table, release: Callable[[], None] = keep, evidence: Evidence = NO_EVIDENCE) -> Expected:
    """Replays the input topic (columns partition, offset, key, value; rows in any order).

    Args:
        release: called while the table is read, to give back the memory of a file's pages.
        evidence: what the record says about batches and time-outs. Time-outs need the column `timestamp_ms`.
    """
    position, read = read_in_order(table, release)
    valid, moved = _in_reading_order(position, read, evidence.batch_ends)
    columns = read if len(valid) == len(position) and not moved.any() else take(read, valid)
    events, keys = events_and_keys(position[valid], columns)
    first = _first_events(events)
    divided = divide(
        (events.key, events.seq, columns.number, events.position),
        keys,
        _others(len(valid), first),
        evidence,
        lambda positions: _times_at(table, positions),
    )
    is_divided = len(divided.keys) > len(keys)
    if is_divided:
        events, keys = replace(events, key=divided.session), divided.keys
        first = _first_events(events)
    arrived = np.bincount(events.key[first], minlength=len(keys))
    # [sessions, 100] places among the valid events, by seq, in the order in which sessions finish
    whole = first[arrived[events.key[first]] == SEQS].reshape(-1, SEQS)
    whole = whole[np.argsort(whole.max(axis=1))]
    last = whole.max(axis=1)
    _refuse_repeated(read.reason, valid, events, first, last)
    if is_divided:
        whole, last = _first_finished(whole, last, [keys[key] for key in events.key[last].tolist()])
    total, checksum = _rows(columns.number, whole)
    finished = events.key[last].astype(np.int64)
    refused = np.flatnonzero(read.reason != VALID)
    return Expected(
        session_keys=[keys[key] for key in finished.tolist()],
        key=finished,
        total=total,
        checksum=checksum,
        ended_at=np.broadcast_to(events.scheduled_us[whole[:, -1]][:, None], (len(whole), ROWS)),
        last_partition=partitions_of(events.position[last]),
        last_offset=offsets_of(events.position[last]),
        events=events,
        invalid=Invalid(position[refused], read.reason[refused]),
        keys=keys,
        unfinished={keys[key]: int(arrived[key]) for key in np.flatnonzero(arrived < SEQS).tolist()},
        never_ended=divided.never_ended,
        earlier=_earlier(events.position, whole, last, np.flatnonzero(moved[columns.key[last]])),
    )


def read_in_order(table: pa.Table, release: Callable[[], None]) -> tuple[Ints, Columns]:
    """Returns ascending positions and the events there.

    Of two records at one position, the first one counts.
    """
    position, order = in_position_order(table)
    return position, take(read_events(table, release), order)


def _in_reading_order(position: Ints, read: Columns, batch_ends: Sequence[Mapping[int, int]]) -> tuple[Ints, Bools]:
    """Returns valid events' places in reading order, and which keys are in several partitions."""
    valid = np.flatnonzero(read.reason == VALID)
    moved = in_several_partitions(position[valid], read.key[valid], len(read.keys))
    if moved.any():
        valid = valid[reorder(position[valid], moved[read.key[valid]], batch_ends)]
    return valid, moved


def _times_at(table: pa.Table, positions: npt.NDArray[np.integer]) -> Ints:
    """Returns the times of the records at packed positions, in ms; all of them exist."""
    position, order = in_position_order(table)
    times: Ints = table["timestamp_ms"].take(pa.array(order[np.searchsorted(position, positions)])).to_numpy()
    return times


def _others(size: int, first: Ints) -> Ints:
    """Returns the places that are not in `first`."""
    if len(first) == size:
        return np.empty(0, np.int64)
    others = np.ones(size, dtype=bool)
    others[first] = False
    return np.flatnonzero(others)


def _first_finished(whole: Ints, last: Ints, names: list[str]) -> tuple[Ints, Ints]:
    """Returns the sessions without those whose key finished before."""
    first = sorted({name: at for at, name in reversed(list(enumerate(names)))}.values())
    return whole[first], last[first]


def take(read: Columns, rows: Ints) -> Columns:
    """Returns these rows of the columns."""
    return Columns(
        read.key[rows], read.seq[rows], read.number[rows], read.scheduled_us[rows], read.reason[rows], read.keys
    )


def events_and_keys(position: Ints, columns: Columns) -> tuple[Events, list[str]]:
    """Returns valid events, and their keys by first appearance."""
    appearing = by_appearance(columns.key, len(columns.keys))
    number = np.full(len(columns.keys), -1, dtype=np.int32)
    number[appearing] = np.arange(len(appearing))
    keys = [columns.keys[at] for at in appearing.tolist()]
    return Events(position, number[columns.key], columns.seq, columns.scheduled_us), keys


def _first_events(events: Events) -> Ints:
    """Returns the places of each session's first events with each seq, by key and seq."""
    event = events.key.astype(np.int64)
    event *= SEQS
    event += events.seq
    order = np.argsort(event, kind="stable")
    event = event[order]
    new = np.ones(len(order), dtype=bool)
    np.not_equal(event[1:], event[:-1], out=new[1:])
    return order if new.all() else order[new]


def _refuse_repeated(reason: npt.NDArray[np.int8], valid: Ints, events: Events, first: Ints, last: Ints) -> None:
    """Enters the reason of each event that its session refuses.

    Args:
        last: the events that finished a session.
    """
    again = _others(len(valid), first)
    if not len(again):
        return
    end = np.full(int(events.key.max()) + 1, len(valid), dtype=np.int64)
    end[events.key[last]] = last
    late = again > end[events.key[again]]
    reason[valid[again]] = np.where(late, CODE["after-end"], CODE["repeated-seq"])


def _rows(number: npt.NDArray[np.int32], whole: Ints) -> tuple[Ints, Ints]:
    """Returns totals and checksums [sessions, 20] of these sessions' values."""
    total, checksum = (np.empty((len(whole), ROWS), dtype=np.int64) for _ in range(2))
    for at in range(0, len(whole), STEP):
        values = number[whole[at : at + STEP]]
        total[at : at + STEP] = values.reshape(-1, ROWS, EVENTS_PER_ROW).sum(axis=2)
        texts = [(_CHECKSUM_TEXTS % tuple(session)).split(b"\n") for session in values.tolist()]
        checksum[at : at + STEP] = [list(map(zlib.crc32, session)) for session in texts]
    return total, checksum


def _earlier(position: Ints, whole: Ints, last: Ints, moved: Ints) -> dict[int, tuple[tuple[int, int], ...]]:
    """Returns `Expected.earlier`, from the sessions `moved` with keys in several partitions."""
    partition = partitions_of(position[last])
    earlier = {}
    for session in moved.tolist():
        ends = dict(map(unpack, np.sort(position[whole[session]]).tolist()))
        if others := tuple((at, end) for at, end in ends.items() if at != partition[session]):
            earlier[session] = others
    return earlier
