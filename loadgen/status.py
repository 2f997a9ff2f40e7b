"""What a load says while it runs and when it is done."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Status:
    """One look at a running load.

    Counts are events since the start; `rate_1s` is events/s handed to the client in the last second;
    `lateness_p99_ms` is of the events sent in the last second, or the age of the next one if that is greater
    (a generator that waits sends nothing, and must not look punctual for it).
    """

    t_us: int
    planned_by_now: int
    sent: int
    acknowledged: int
    failed: int
    rate_1s: float
    lateness_p99_ms: float


@dataclass(frozen=True)
class Lateness:
    """Sent minus scheduled time, ms, over all events that were sent; 0 throughout if none was."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True)
class Summary:
    """What a load did.

    `unknown`: sent, but no answer came before the load gave up waiting. `duration_s`: from schedule time 0 to
    the last acknowledgement (the last send if there is none). `events_per_s`: acknowledged events over that
    time. `sent_share`: sent / planned, of the whole plan, also when the load was stopped early. `error`: why
    the load ended before its plan did, or None; a stop on request is no error.
    """

    planned: int
    sent: int
    acknowledged: int
    failed: int
    unknown: int
    duration_s: float
    events_per_s: float
    lateness_ms: Lateness
    sent_share: float
    finished_us: int
    error: str | None = None


def lateness(scheduled_us: npt.NDArray[np.int64], sent_us: npt.NDArray[np.int64]) -> Lateness:
    """Exact percentiles (nearest rank) of the events that were sent (`sent_us` > 0); takes 17 bytes each."""
    late_us = (sent_us - scheduled_us)[sent_us > 0]
    if not len(late_us):
        return Lateness(0.0, 0.0, 0.0)
    ranks = [max(0, -(-len(late_us) * percent // 100) - 1) for percent in (50, 99, 100)]
    late_us.partition(ranks)
    p50, p99, most = (round(float(late_us[rank]) / 1e3, 3) for rank in ranks)
    return Lateness(p50, p99, most)


class StatusFile:
    """JSON lines, one per status, flushed at once so that they can be followed; the last is the summary."""

    def __init__(self, path: Path) -> None:
        """Starts the file anew. Raises OSError if it cannot be written."""
        self._file = path.open("w", encoding="ascii")

    def status(self, status: Status) -> None:
        """Write one status."""
        self._line(asdict(status))

    def done(self, summary: Summary) -> None:
        """Write the last line."""
        self._line({"done": True, "summary": asdict(summary)})

    def _line(self, data: dict[str, object]) -> None:
        self._file.write(json.dumps(data) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
