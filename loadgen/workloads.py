"""The workloads that the generator can plan: how each changes the events of the schedule.

The first two have the sessions, keys and values of `loadgen.schedule` and `loadgen.session`, so their loads compare.

**sessions** changes nothing.

**windows** is for a pipeline that counts events in event-time windows. The event time is `scheduled_at`.

- Some events are certainly late: their event time is LATE_BY_US before the time at which they are sent. A watermark has
  passed such a time in every run whose pipeline has read one event of the present before the load begins.
- All other events are certainly in time: no event is sent while an event that is `most_ahead_us` older has no answer
  from Kafka. So a watermark that is `most_ahead_us` or more behind the newest event is never ahead of a coming event.
  This holds for any partitions that a batch reads.

**records** sends the lines of a file instead (`loadgen.replay`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LATE_SEQ = 50
"""In the middle of its session, so that both neighbours are in time."""

LATE_BY_US = 3_600_000_000
"""One hour. The first event that a pipeline reads comes minutes before the load, so its watermark is newer."""

LATE_EVERY = 10
"""One late event per 1,000 events: enough to count in a short run, too few to change the load."""

FOREVER_US = 2**63 - 1
"""Later than every event."""

MOST_AHEAD_US = 2_000_000
"""Well above the time of an acknowledgement, which is milliseconds, so that only an outage holds the load back."""


@dataclass(frozen=True)
class Workload:
    """How a load differs from plain sessions.

    Attributes:
        late_every: one late event in the first of this many sessions; None: no event is late.
        most_ahead_us: see the module; None: no event waits for another.
        replays: whether the events are the lines of a file.
    """

    name: str
    late_every: int | None = None
    most_ahead_us: int | None = None
    replays: bool = False

    def late(self, session: npt.NDArray[np.uint32], seq: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Which of these events are late."""
        every = self.late_every
        return np.zeros(len(seq), dtype=bool) if every is None else (session % every == 0) & (seq == LATE_SEQ)


SESSIONS = Workload("sessions")
WINDOWS = Workload("windows", LATE_EVERY, MOST_AHEAD_US)
RECORDS = Workload("records", replays=True)

WORKLOADS: Mapping[str, Workload] = {workload.name: workload for workload in (SESSIONS, WINDOWS, RECORDS)}


class Order:
    """Holds events back while an older one has no answer.

    Args:
        due_us: when each event is due, ascending.
        acked_us: the ledger's column; 0 where an event has no answer.
        most_ahead_us: see `Workload`.
    """

    def __init__(
        self, due_us: npt.NDArray[np.int64], acked_us: npt.NDArray[np.int64], most_ahead_us: int | None
    ) -> None:
        self._due_us, self._acked_us, self._most_ahead_us = due_us, acked_us, most_ahead_us
        self._oldest = 0

    def newest_us(self, sent: int) -> int:
        """Returns the latest due time (in µs) that may be sent after the first `sent` events.

        At least one event must be left.
        """
        if self._most_ahead_us is None:
            return FOREVER_US
        waiting = self._acked_us[self._oldest : sent] == 0
        self._oldest += int(waiting.argmax()) if waiting.any() else len(waiting)
        return int(self._due_us[self._oldest]) + self._most_ahead_us
