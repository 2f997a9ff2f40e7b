"""The newest status lines of a run's generators, and of its observers, as one line.

Promise: the line of one process is returned as it is. Over several, counts are sums. Lateness and latencies are the
largest of any process: percentiles cannot be added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oncebench.record.json_lines import Tail
from oncebench.record.numbered import numbered

Line = Mapping[str, Any]
_COUNTS = ("planned", "sent", "acknowledged", "failed", "unknown")


class Statuses:
    """Follows the status files of `count` processes: `name`, or one numbered file each."""

    def __init__(self, folder: Path, name: str, count: int) -> None:
        self._tails = [Tail(folder / each) for each in numbered(name, count)]

    def last(self) -> list[dict[str, Any]]:
        """Returns the newest line of each process; empty before its first."""
        return [tail.last() for tail in self._tails]


def load_line(each: Sequence[Line]) -> Line:
    """Returns the status of the load: a summary once every generator has written its own."""
    if len(each) == 1 or not any(each):
        return each[0]
    counts = [line.get("summary", line) for line in each]
    if all("summary" in line for line in each):
        return {"done": True, "summary": {name: _sum(counts, name) for name in _COUNTS}}
    return {
        "t_us": _max(counts, "t_us"),
        # A generator that is done has a summary, in which everything is planned by now.
        "planned_by_now": _sum(each, "planned_by_now") + _sum([line.get("summary", {}) for line in each], "planned"),
        **{name: _sum(counts, name) for name in ("sent", "acknowledged", "failed")},
        "rate_1s": _sum(each, "rate_1s"),
        "lateness_p99_ms": _max(each, "lateness_p99_ms"),
    }


def observer_line(each: Sequence[Line]) -> Line:
    """Returns the status of the observation.

    A percentile is None if no observer saw a row in the last second.
    """
    if len(each) == 1 or not any(each):
        return each[0]
    largest = {name: _max(each, name) for name in ("t_us", "last_row_us", "p50_ms", "p99_ms", "max_ended_at_us")}
    return {**largest, "visible": _sum(each, "visible")}


def _sum(lines: Sequence[Line], name: str) -> Any:
    return sum(line.get(name, 0) for line in lines)


def _max(lines: Sequence[Line], name: str) -> Any:
    return max((line[name] for line in lines if line.get(name) is not None), default=None)
