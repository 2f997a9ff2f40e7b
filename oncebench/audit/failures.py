"""When the failures of a run acted, and so which rows each of them may have touched.

A lost or duplicated row is excused only by a failure that touched it. At-most-once may lose rows after a failure, and
at-least-once may duplicate rows. Neither may do so at any other time.

A failure touches a row if it acts between the earliest start of the work on the row and the end of that work
(`oncebench.audit.python.history.writing_times`). The times at which a failure acts:

| failure | acts from | until |
|---|---|---|
| the run kills the pipeline | the hit, or the exit | the exit |
| another fault of a process, such as a stop or a zombie | the hit | AFTERMATH_US after the fault's end |
| a fault of a server, a connection or a disk | the hit | AFTERMATH_US after the fault's end |
| an exit that the run did not intend: a server may be its cause | the exit | AFTERMATH_US after the exit |
| a fault that replaces the checkpoint | the hit | the end of the run |

- A replaced checkpoint may divide the remaining input into other batches, and it has other claims and positions. So
  such a fault may touch every batch after it. Batches before it are touched if they were read again.
- At-most-once does not wait for a server. A fault of a server, a connection or a disk, and an unintended exit, also
  touch rows that were written up to UNCONFIRMED_US before it, and all rows after it: no record shows when the last
  client has a new connection and a new leader.
- An engine without batches may report a position whose rows at-most-once has not sent yet. So all its failures touch
  rows up to UNCONFIRMED_US before.
- A fault whose end is not recorded lasts until the end of the run.

Promise: a pure function of timeline and hits. Where the record does not show whether a failure touched a row, the
failure excuses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from oncebench.audit.exits import AFTERMATH_US, each_exit
from oncebench.audit.not_exercised import ended_us
from oncebench.delivery.contract import AT_MOST_ONCE
from oncebench.delivery.failpoints import KILL, ZOMBIE
from oncebench.record import Record
from oncebench.record.schema import POSITION

# A replica that is in sync may lack the rows of the last 30 s (`replica.lag.time.max.ms`). PostgreSQL without
# `synchronous_commit` needs 0.6 s to put rows on disk.
UNCONFIRMED_US = 30_000_000
# Actions on processes of the pipeline: they harm no row that a server or a file holds.
OF_PROCESSES = frozenset({
    KILL, ZOMBIE, "stop", "end", "outage", "crash-loop", "repartition",
    "kill-worker", "stop-worker", "kill-executor", "stop-executor",
})  # fmt: skip
# Actions after which the pipeline continues on another checkpoint.
OF_CHECKPOINTS = frozenset({
    "cut-offsets", "empty-offsets", "lose-offsets", "cut-commits", "empty-commits", "lose-commits",
    "flip-state", "roll-back", "lose-checkpoint",
})  # fmt: skip


class Failure(NamedTuple):
    """A failure that acted from one time until another, in epoch µs; `until_us` may be infinite."""

    from_us: float
    until_us: float


def failures_of(record: Record, guarantee: str) -> list[Failure]:
    """Returns the failures of a run, each with the times at which it may touch rows.

    The list is empty if nothing failed.
    """
    return [*_exits(record, guarantee), *_faults(record, guarantee)]


def _exits(record: Record, guarantee: str) -> Iterator[Failure]:
    by_position = any(line.get("kind") == POSITION for line in record.progress.items)
    for line, _, intended in each_exit(record.timeline.items, record.hits.items):
        at_us = line["t_us"]
        if not intended:
            yield _outside(at_us, at_us, guarantee)
        elif by_position and guarantee == AT_MOST_ONCE:
            yield Failure(at_us - UNCONFIRMED_US, at_us)
        else:
            yield Failure(at_us, at_us)


def _faults(record: Record, guarantee: str) -> Iterator[Failure]:
    hits, timeline = record.hits.items, record.timeline.items
    exits_us = [line["t_us"] for line, _, _ in each_exit(timeline, hits)]
    for hit in hits:
        at_us, action = hit["t_us"], hit["action"]
        if action in OF_CHECKPOINTS:
            yield Failure(at_us, math.inf)
        elif action == KILL:
            yield Failure(at_us, min((each for each in exits_us if each >= at_us), default=math.inf))
        elif action in OF_PROCESSES:
            yield Failure(at_us, ended_us(hit, hits, timeline) + AFTERMATH_US)
        else:
            yield _outside(at_us, ended_us(hit, hits, timeline), guarantee)


def _outside(from_us: float, until_us: float, guarantee: str) -> Failure:
    """Returns a failure outside the pipeline's processes."""
    if guarantee == AT_MOST_ONCE:
        return Failure(from_us - UNCONFIRMED_US, math.inf)
    return Failure(from_us, until_us + AFTERMATH_US)
