"""Committed readers: the interface, and a reader for sinks that are polled.

A committed reader returns the rows that any correct reader of the sink would get.

Promise of every `Reader`: it returns a row once per position (partition, offset), in ascending offset per partition,
and only when the row is committed. Sinks that are not logs use the same two numbers: a file and its line, a table and
its sequence column. If a run can go on after a problem, the `ReadReport` describes it and nothing is raised.

A row counts as seen when its data have reached the reader, as bytes of JSON or as columns. Any program that reads the
sink has the data then. The time that our own record takes afterwards is not included. A log delivers rows by itself,
and the kernel reports new files (`changes`). Every other sink is polled every POLL_S, or less often to stay below
POLL_SHARE of a core. A row is then seen half an interval late on average, plus the time that the poll takes to find and
read it. `python -m tools.visibility_delay` measures both."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

Headers = Sequence[tuple[str, bytes | None]]

# A row's place in a file as one position of 63 bits. A log's offset takes 44 bits (`oncebench.audit.python.reads`).
LINE_BITS = 24  # at most 16 million rows in one file
NAME_BITS = 39  # two of 1,000 files collide with a probability of one in a million; the audit would report INCO
OFFSET_BITS = 44
# Between two polls of a sink that does not report changes: rows are seen 2.5 ms late on average, one percent of the
# latencies of such sinks.
POLL_S = 0.005
# Polls may use at most this share of a core, so they cost little compared with a pipeline that uses a quarter of one. A
# poll of more than 50 us (PostgreSQL on a slow machine, a big folder) is repeated less often. The measure is processor
# time of this process with all its threads: a poll that only waited for others must not delay the next one. A server's
# work for a poll is not included; PostgreSQL's session takes half of ours.
POLL_SHARE = 0.01
# With reports of changes, for changes that are not reported. 20 polls a second take a thousandth of a core.
FALLBACK_POLL_S = 0.05
# How a transaction ended, by the marker in the log.
COMMIT, ABORT = "commit", "abort"


def now_us() -> int:
    """Returns the time, epoch µs."""
    return time.time_ns() // 1000


@dataclass(frozen=True)
class Rows:
    """Rows as columns of equal length: position, time of append (epoch ms), key, value, headers.

    `seen_us`: epoch µs, when the data of all rows had been read; by default, when this object was made.
    """

    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    append_ms: list[int] = field(default_factory=list)
    key: list[bytes | None] = field(default_factory=list)
    value: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    seen_us: int = field(default_factory=now_us, compare=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.offset)


# The result of most polls, made once. Callers must not add to the columns of rows that a reader returns.
NOTHING = Rows()


@dataclass(frozen=True)
class End:
    """A partition's first offset, committed reader's end (`lso`), and end of the log (`hw`)."""

    low: int
    lso: int
    hw: int


@dataclass(frozen=True)
class ReadReport:
    """The result of a read.

    Attributes:
        ends: of each partition.
        waited_s: seconds spent waiting for open transactions to end.
        complete: whether the reader returned every row from offset 0 to each `lso`.
        note: why the read is not complete.
        log: whether the sink is a log, so that each partition has an end.
    """

    ends: Mapping[int, End]
    waited_s: float
    complete: bool
    note: str = ""
    log: bool = True

    def ends_json(self) -> dict[str, dict[str, int]]:
        """Returns the ends in the form of the run folder."""
        return {str(p): {"low": end.low, "lso": end.lso, "hw": end.hw} for p, end in sorted(self.ends.items())}


@dataclass(frozen=True)
class Stretches:
    """Stretches of a stored log as columns of equal length, visible to readers or not.

    A stretch is what Kafka calls a record batch: the records that a writer sent at once. A control batch, which ends a
    transaction, is a stretch too. Each stretch begins at `offset`, ends with `last_offset` and holds `records` records.

    Attributes:
        producer: id of the writer; -1 if the log names none.
        generation: of the driver that the producer wrote for; None if unknown.
        marker: COMMIT or ABORT where a transaction of the producer ends; None where there are records.
    """

    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    last_offset: list[int] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    producer: list[int] = field(default_factory=list)
    generation: list[int | None] = field(default_factory=list)
    transactional: list[bool] = field(default_factory=list)
    marker: list[str | None] = field(default_factory=list)


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that is open in a partition, and its coordinator's view. Times: epoch ms.

    Attributes:
        partition, offset: of its first record there.
        producer: its producer id.
        transactional_id, state: None if no coordinator has the producer.
        here: whether the coordinator has this partition in the transaction.
        started_ms: -1 if the coordinator has no running transaction of the producer.
        timeout_ms: of the transaction.
        asked_ms: when the coordinator was asked.
    """

    partition: int
    offset: int
    producer: int
    transactional_id: str | None
    state: str | None
    here: bool
    started_ms: int
    timeout_ms: int
    asked_ms: int


class LogReader(Protocol):
    """Reads the stored log of a sink, with records that no committed reader returns."""

    def read(self, ends: Mapping[int, End], take: Callable[[Stretches], Any], *, idle_s: float) -> None:
        """Passes all stretches of [low, hw) to `take`. Raises `ReadError` after `idle_s` of silence."""
        ...

    def open_transactions(self, partitions: Sequence[int], *, idle_s: float) -> list[OpenTransaction]:
        """Returns these partitions' open transactions. Raises `ReadError` after `idle_s` of silence."""
        ...

    def close(self) -> None:
        """Closes connections."""
        ...


class Reader(Protocol):
    """A committed reader of one sink. Raises `ReadError` if the sink cannot be read at all."""

    def poll(self, timeout_s: float) -> Rows:
        """Returns rows that became visible since the last call; waits at most `timeout_s` for one."""
        ...

    def ends(self) -> dict[int, End]:
        """Returns the present end of each partition."""
        ...

    def read_to_end(self, take: Callable[[Rows], Any], *, settle_s: float, idle_s: float) -> ReadReport:
        """Passes every row of [0, end) to `take`.

        Waits up to `settle_s` for open transactions to end. Stops after `idle_s` without a row; the report's `note`
        then gives the reason.
        """
        ...

    def leftovers(self) -> list[str]:
        """Lists what stays invisible: temporary or unreferenced files, unfinished transactions."""
        ...

    def close(self) -> None:
        """Closes connections and ends threads."""
        ...


class NotAnsweredError(Exception):
    """The sink did not answer a poll: unlike after an empty answer, there may be new rows."""


class Changes(Protocol):
    """Reports when a poll may find new rows."""

    def wait(self, at_most_s: float) -> None:
        """Returns after a change since the last call, or after `at_most_s`."""
        ...

    def close(self) -> None:
        """Ends the reports and releases what they need."""
        ...


class Snapshots:
    """A reader that polls a sink which is not a log.

    Args:
        fresh: returns the rows that became visible since its last call; fast if there are none. Raises
            `NotAnsweredError` while the sink is away and may come back, `ReadError` if that takes too long.
        leftovers: see `Reader.leftovers`.
        close: releases what `fresh` uses.
        changes: reports when a poll may find new rows; None: no reports.
    """

    def __init__(
        self,
        fresh: Callable[[], Rows],
        leftovers: Callable[[], list[str]] = list,
        close: Callable[[], None] = lambda: None,
        changes: Changes | None = None,
    ) -> None:
        self._fresh = fresh
        self.leftovers = leftovers
        self._close = close
        self._changes = changes
        self._spent_s = 0.0

    def poll(self, timeout_s: float) -> Rows:
        """See `Reader.poll`."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                rows = self._poll_once()
            except NotAnsweredError:
                rows = NOTHING
            if len(rows) or time.monotonic() >= deadline:
                return rows
            self._pause(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """See `Reader.close`."""
        if self._changes is not None:
            self._changes.close()
        self._close()

    def ends(self) -> dict[int, End]:
        """Returns nothing: only logs have ends."""
        return {}

    def read_to_end(self, take: Callable[[Rows], Any], *, settle_s: float = 0.0, idle_s: float = 0.0) -> ReadReport:
        """See `Reader.read_to_end`: reads all rows without waiting; nothing hides committed rows."""
        del settle_s, idle_s
        while True:
            try:
                rows = self._poll_once()
            except NotAnsweredError:
                time.sleep(POLL_S)
                continue
            if not len(rows):
                break
            take(rows)
        return ReadReport({}, 0.0, complete=True, log=False)

    def _poll_once(self) -> Rows:
        started = time.process_time()
        rows = self._fresh()
        self._spent_s = time.process_time() - started
        return rows

    def _pause(self, at_most_s: float) -> None:
        """Waits for a reported change, or until the next poll is due."""
        if self._changes is None:
            time.sleep(min(max(POLL_S, self._spent_s / POLL_SHARE), at_most_s))
        else:
            self._changes.wait(min(FALLBACK_POLL_S, at_most_s))


def rows_of(
    places: Sequence[tuple[int, int]],
    append_ms: Sequence[int],
    rows: Sequence[Mapping[str, Any]],
    key: str,
    seen_us: int,
) -> Rows:
    """Converts rows with columns to the form that the audit reads: key, and value as JSON.

    Args:
        places: (partition, offset) of each row.
        append_ms: when each row was written, epoch ms.
        rows: fields of each row.
        key: the field that is the key of a row; a row without it has an empty key.
        seen_us: see `Rows`; taken before fields become Python objects, where the reader can separate the two.
    """
    if not rows:
        return NOTHING
    return Rows(
        partition=[partition for partition, _ in places],
        offset=[offset for _, offset in places],
        append_ms=list(append_ms),
        key=[str(row.get(key, "")).encode() for row in rows],
        value=[orjson.dumps(row, default=_as_text) for row in rows],
        headers=[()] * len(rows),
        seen_us=seen_us,
    )


def _as_text(value: object) -> str:
    """Converts a value for which JSON has no type.

    Bytes become base64, as in Spark's `to_json`; decimals and durations become text.
    """
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def place_in_file(name: str, line: int) -> tuple[int, int]:
    """Returns (partition, offset) of a row in a file: a hash of the file's name, and the line."""
    hashed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> (64 - NAME_BITS)
    position = (hashed << LINE_BITS) | line
    return position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1)
