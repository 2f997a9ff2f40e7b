"""The status of a running load and its final summary."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Status:
    """The state of a running load at one moment.

    Attributes:
        t_us: the time, epoch µs.
        planned_by_now, sent, acknowledged, failed: events since the start.
        rate_1s: events/s given to the client in the last second.
        lateness_p99_ms: lateness of the events of the last second, or the age of the next event if greater. A waiting
            generator sends nothing, and must not look punctual.
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
    """Sent minus scheduled time over all sent events, ms; all 0 if no event was sent."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True)
class Summary:
    """The result of a load.

    Attributes:
        planned, sent, acknowledged, failed: numbers of events.
        unknown: events that were sent and got no answer before the load stopped waiting.
        duration_s: from schedule time 0 to the last acknowledgement (to the last send if there is none).
        events_per_s: acknowledged events per second of `duration_s`.
        lateness_ms: lateness of all sent events.
        sent_share: sent / planned, for the whole plan even if the load was stopped early.
        error: why the load ended before its plan, or None; a stop on request is no error.
        queue_full_s: how long events were due while the client's queue was full, because Kafka had not answered.
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
    error: str | None = None
    queue_full_s: float = 0.0


def lateness(scheduled_us: npt.NDArray[np.int64], sent_us: npt.NDArray[np.int64]) -> Lateness:
    """Nearest-rank percentiles of the sent events (`sent_us` > 0). Needs 17 bytes per event."""
    late_us = (sent_us - scheduled_us)[sent_us > 0]
    if not len(late_us):
        return Lateness(0.0, 0.0, 0.0)
    found = np.quantile(late_us, (0.5, 0.99, 1.0), method="inverted_cdf", overwrite_input=True)
    p50, p99, most = (round(float(value) / 1e3, 3) for value in found)
    return Lateness(p50, p99, most)


class StatusFile:
    """A file of JSON lines: one per status, flushed at once; the last line is the summary."""

    def __init__(self, path: Path) -> None:
        """Creates the file, or empties it. Raises OSError if it cannot be written."""
        self._file = path.open("w", encoding="ascii")

    def status(self, status: Status) -> None:
        """Writes one status."""
        self._line(asdict(status))

    def done(self, summary: Summary) -> None:
        """Writes the summary as the last line."""
        self._line({"done": True, "summary": asdict(summary)})

    def _line(self, data: dict[str, object]) -> None:
        self._file.write(json.dumps(data) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
