"""What a committed reader of a sink is: it shows what anybody who reads the sink properly would be shown.

Promise of every `Reader`: a row is given once per position (partition, offset), in ascending offset per
partition, and only when it is committed. A sink that is no log maps onto the same two numbers: a file and its
line, a table and its sequence column. What can go wrong is told in the `ReadReport`, not raised, wherever a
run can go on without it.

A row counts as seen once its data are with the reader: bytes of JSON or columns, as any program that reads the sink has
them then. What our own record does with them afterwards is not in it. A log hands rows over by itself, and of files the
kernel tells (`changes`); any other sink is looked at every POLL_S, or as seldom as POLL_SHARE of a core allows, so that
a row is seen half of that later on average, and the time that a look takes to find and read it
(`python -m tools.visibility_delay` measures both).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

Headers = Sequence[tuple[str, bytes | None]]

# A row's place in a file as one position: 63 bits, of which a log's offset takes 44 (see
# `oncebench.audit.python.reads`).
LINE_BITS = 24  # 16 million rows in one file
NAME_BITS = 39  # two of 1,000 files meet with a probability of one in a million; a meeting would show as INCO
OFFSET_BITS = 44
# Between two looks at a sink that cannot tell by itself when something has become visible, nor has anybody who does:
# 2.5 ms late on average, a percent of the latencies there.
POLL_S = 0.005
# Looks may use this share of a core at most, so that looking costs little beside a pipeline that uses a quarter of one:
# a look of more than 50 us (PostgreSQL on a slow machine, a big folder) is taken less often. By processor time of this
# process, all its threads: a look that was only kept waiting by others must not make the next late. What a server does
# for a look is not in it; PostgreSQL's session takes half of what ours does.
POLL_SHARE = 0.01
# Where somebody tells of changes: for those of which no word comes. 20 looks a second take a thousandth of a core.
FALLBACK_POLL_S = 0.05
# How a transaction ended, by the marker in the log.
COMMIT, ABORT = "commit", "abort"


def now_us() -> int:
    """The clock, epoch µs."""
    return time.time_ns() // 1000


@dataclass(frozen=True)
class Rows:
    """Columns of equal length: where each row stands, when it was appended (epoch ms), its key and value.

    `seen_us`: epoch µs, when the data of all of them had been read; unless it is said, when this was made of them.
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


# What most looks find: made once, for they are many. Nobody adds to the columns of rows that are given.
NOTHING = Rows()


@dataclass(frozen=True)
class End:
    """Of one partition: its first offset, the end for a committed reader (`lso`), and the end of the log (`hw`)."""

    low: int
    lso: int
    hw: int


@dataclass(frozen=True)
class ReadReport:
    """How a read went: `complete` if every row from offset 0 to each `lso` was given; if not, `note` says why
    not.

    `waited_s`: seconds spent waiting for open transactions to end. `log`: whether positions have ends.
    """

    ends: Mapping[int, End]
    waited_s: float
    complete: bool
    note: str = ""
    log: bool = True

    def ends_json(self) -> dict[str, dict[str, int]]:
        """The ends as the run folder keeps them."""
        return {str(p): {"low": end.low, "lso": end.lso, "hw": end.hw} for p, end in sorted(self.ends.items())}


@dataclass(frozen=True)
class Stretches:
    """Columns of equal length: stretches of a log as it is kept, whoever may be shown them.

    Each begins at `offset`, ends with `last_offset` and holds that many `records`. `producer`: -1 if the log does not
    name one. `generation`: of the driver it wrote for, None if that is not known. `marker`: COMMIT or ABORT where a
    transaction of the producer ends, and None where there are records.
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
    """A transaction that is open in a partition, and what its coordinator says of it.

    `offset`: of its first record there. `transactional_id`, `state`: None if no coordinator knows the producer.
    `here`: whether the coordinator has the partition in the transaction. Times in epoch ms; `started_ms` is -1 where
    the coordinator has none running; `asked_ms`: when it was asked.
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
    """Reads the log beneath a sink, past what any reader is shown."""

    def read(self, ends: Mapping[int, End], take: Callable[[Stretches], Any], *, idle_s: float) -> None:
        """Give every stretch of [low, hw) to `take`, in order. Raises `ReadError` if nothing came for `idle_s`."""
        ...

    def open_transactions(self, partitions: Sequence[int], *, idle_s: float) -> list[OpenTransaction]:
        """What is open in these partitions. Raises `ReadError` if nobody said so for `idle_s`."""
        ...

    def close(self) -> None:
        """Give back connections."""
        ...


class Reader(Protocol):
    """A committed reader of one sink. Raises `ReadError` if the sink can't be read at all."""

    def poll(self, timeout_s: float) -> Rows:
        """The rows that became visible since the last call; waits up to `timeout_s` for the first of them."""
        ...

    def ends(self) -> dict[int, End]:
        """The present end of each partition."""
        ...

    def read_to_end(self, take: Callable[[Rows], Any], *, settle_s: float, idle_s: float) -> ReadReport:
        """Give every row of [0, end) to `take`, after waiting up to `settle_s` for open transactions to end.

        Gives up, and says so in the report, when nothing came for `idle_s`.
        """
        ...

    def leftovers(self) -> list[str]:
        """What no commit will ever show: temporary files, open or prepared transactions, unreferenced files."""
        ...

    def close(self) -> None:
        """Give back connections and threads."""
        ...


class NotAnsweredError(Exception):
    """The sink could not be asked just now: that is not the same as being shown nothing."""


class Changes(Protocol):
    """Tells when there may be something to look at."""

    def wait(self, at_most_s: float) -> None:
        """Until something has changed since the last call, or so long."""
        ...

    def close(self) -> None:
        """Give back what it takes to be told."""
        ...


class Snapshots:
    """A reader of a sink that is no log: it is asked again and again what is there now.

    Args:
        fresh: gives the rows that became visible since it was called last; quick when there are none. Raises
            `NotAnsweredError` as long as the sink is away and may come back, `ReadError` when that takes too long.
        leftovers: see `Reader.leftovers`.
        close: gives back what `fresh` uses.
        changes: tell when there is something to look at; None: nobody does.
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
        """None: what is no log has no ends."""
        return {}

    def read_to_end(self, take: Callable[[Rows], Any], *, settle_s: float = 0.0, idle_s: float = 0.0) -> ReadReport:
        """See `Reader.read_to_end`: everything that is there. Nothing hides what is committed, so nothing is waited
        for."""
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
        """Until there is a reason for the next look, or until it may be taken without one."""
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
    """Rows that a sink holds as columns, in the form in which every sink's rows are judged: key, and value as JSON.

    Args:
        places: (partition, offset) of each row.
        append_ms: when it was written, epoch ms.
        rows: its fields.
        key: the field that is the key of a row; a row without it has an empty key.
        seen_us: see `Rows`; the clock before fields were made Python objects, where that can be told apart.
    """
    if not rows:
        return NOTHING
    return Rows(
        partition=[partition for partition, _ in places],
        offset=[offset for _, offset in places],
        append_ms=list(append_ms),
        key=[str(row.get(key, "")).encode() for row in rows],
        value=[orjson.dumps(row) for row in rows],
        headers=[()] * len(rows),
        seen_us=seen_us,
    )


def place_in_file(name: str, line: int) -> tuple[int, int]:
    """(partition, offset) of a row in a file: the file's name by its hash, then the line."""
    hashed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> (64 - NAME_BITS)
    position = (hashed << LINE_BITS) | line
    return position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1)
