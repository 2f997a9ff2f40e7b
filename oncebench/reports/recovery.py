"""How long a fault kept rows from being seen: a pure function of what was recorded.

The marks of a recovery, each in milliseconds after the fault: `detect` (the supervisor saw the death; 0 for a random
kill, which is its own doing; for a pipeline that was stopped, when the supervisor let it go on), `restart`
(the new process has its query running), `first_visible` (first new row seen by a committed reader), `caught_up`
(latency is back under the p99 from before the fault, and stays there while rows come). `longest_gap` is the longest
time without a new row in the whole run after the first one.

With several faults the marks are those of the first; what cannot be told is None. (Marks as in Kafka's and Redpanda's
chaos tests; never starting after detection.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
US_PER_MS = 1000.0
CONTINUED = "pipeline-continued"
# What the supervisor notes when it answers a fault.
ANSWERS = ("pipeline-killed", "pipeline-failed", CONTINUED, "random-kill", "zombie-left")


@dataclass(frozen=True)
class Recovery:
    """Milliseconds after the (first) fault; None where it did not happen or was not seen."""

    detect: float | None = None
    restart: float | None = None
    first_visible: float | None = None
    caught_up: float | None = None
    longest_gap: float | None = None

    def as_json(self) -> dict[str, float | None]:
        """As it stands in a report."""
        return {name: None if ms is None else round(ms, 1) for name, ms in asdict(self).items()}


def recovery(
    timeline: Sequence[Mapping[str, Any]],
    hits: Sequence[Mapping[str, Any]],
    running_us: Sequence[int],
    seen_us: Ints,
    latency_us: Ints,
) -> Recovery:
    """The recovery from the first fault of a run.

    Args:
        timeline: the supervisor's lines.
        hits: the failpoints' lines.
        running_us: when each life of the pipeline had its query running.
        seen_us: when each row was first seen, any order.
        latency_us: latency of the same rows.
    """
    order = np.argsort(seen_us, kind="stable")
    seen, latency = seen_us[order], latency_us[order]
    gap = float(np.max(np.diff(seen))) / US_PER_MS if len(seen) > 1 else None
    kills = [line["t_us"] for line in timeline if line["event"] == "random-kill"]
    fault_us = min([*(hit["t_us"] for hit in hits), *kills], default=None)
    if fault_us is None:
        return Recovery(longest_gap=gap)
    answers = [line for line in timeline if line["event"] in ANSWERS and line["t_us"] > fault_us]
    answer = min(answers, key=lambda line: int(line["t_us"]), default=None)
    detected = fault_us if fault_us in kills else None if answer is None else int(answer["t_us"])
    # Rows that were visible before the fault may be seen a moment after it; new ones come from the next life, or,
    # after a stop, from the process that was continued.
    continued = fault_us not in kills and answer is not None and answer["event"] == CONTINUED
    restarted = None if continued else _first_after(running_us, fault_us)
    resumed = restarted if restarted is not None else detected
    visible = None if resumed is None else _first_after(seen.tolist(), resumed)
    return Recovery(
        detect=_since(fault_us, detected),
        restart=_since(fault_us, restarted),
        first_visible=_since(fault_us, visible),
        caught_up=_since(fault_us, _caught_up(seen, latency, fault_us, visible)),
        longest_gap=gap,
    )


def _caught_up(seen: Ints, latency: Ints, fault_us: int, visible_us: int | None) -> int | None:
    before = latency[seen < fault_us]
    if visible_us is None or len(before) == 0:
        return None
    limit = np.percentile(before, 99)
    after = np.flatnonzero(seen >= visible_us)
    late = after[latency[after] > limit]
    if len(late) == 0:
        return visible_us
    good = after[after > late[-1]]
    return int(seen[good[0]]) if len(good) else None


def _first_after(times: Any, after: int) -> int | None:
    return min((t for t in times if t > after), default=None)


def _since(fault_us: int, t_us: int | None) -> float | None:
    return None if t_us is None else (t_us - fault_us) / US_PER_MS
