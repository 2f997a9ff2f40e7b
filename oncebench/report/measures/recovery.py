"""The time for which each fault delayed visible rows: pure functions of a record.

The marks of a recovery, each in milliseconds after its fault:

- `detect`: the supervisor saw that the process was dead. 0 for a random kill, which the supervisor does itself. For a
  pipeline that was paused: when it was continued.
- `restart`: the first new process has its query running.
- `first_visible`: a committed reader saw the first new row.
- `caught_up`: from here on, for CALM_S, no row was later than the p99 from before the first fault.
- `longest_gap`: the longest time without a new row.
- `replayed_rows`: how many rows were made again; always None if the pipeline does not report rows.

The marks count from the failpoint. A fault of one broker of several counts from the loss of that broker: it first waits
until all replicas are in sync, and the pipeline is stopped meanwhile.

The time of a fault ends at the next fault. Everything in between is attributed to that fault, even an unasked death.
A mark that did not happen by then, or is unknown, is None. So `caught_up` is None if the next fault, or the end of the
load, comes sooner than CALM_S after the recovery. In a chain of faults it always does.

The marks are those of Kafka's and Redpanda's chaos tests. They count from the fault, not from its detection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.audit.python.latency import Distribution
from oncebench.record import events
from oncebench.record.schema import RUNNING, SINK
from oncebench.scenario.matrix.families import RANDOM_KILL

Ints = npt.NDArray[np.int64]
Line = Mapping[str, Any]
US_PER_MS = 1000.0
# One or two good batches may be luck, ten batches of a second each are not. The time is limited, because even in a
# healthy run one row in a hundred is later than the p99.
CALM_S = 10.0
CALM_US = round(CALM_S * 1e6)
# The supervisor's events in answer to a fault. The last is the clean stop that the fault `end` requests.
ANSWERS = (
    events.PIPELINE_KILLED, events.PIPELINE_FAILED, events.PIPELINE_CONTINUED, events.RANDOM_KILL, events.ZOMBIE_LEFT,
    events.PIPELINE_STOPPED,
)  # fmt: skip
# What a fault of one broker of several records when it takes the broker away (`oncebench.faults.replicas.one_broker`).
BROKER_LOST = (events.LEADER_KILLED, events.LEADER_STOPPED, events.LEADER_ENDS, events.LEADER_ISOLATED)


@dataclass(frozen=True)
class Recovery:
    """Milliseconds after the fault, and rows; None if a mark did not happen or was not seen.

    `replayed_rows` counts the rows that were made again after the restart, whether they were written or only drained.
    They belong to batches that had begun before the fault, or that the killed attempt left open. A replay that was
    killed itself counts for the fault after which it was completed.
    """

    detect: float | None = None
    restart: float | None = None
    first_visible: float | None = None
    caught_up: float | None = None
    longest_gap: float | None = None
    replayed_rows: int | None = None

    def as_json(self) -> dict[str, float | None]:
        """The marks by name, as in a report."""
        return {name: round(value, 1) if isinstance(value, float) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Observed:
    """A run's record of its attempts and of its rows.

    Attributes:
        timeline: the supervisor's lines.
        progress: the pipeline's lines.
        seen_us: when each row was first seen, ascending.
        latency_us: the latency of the same rows.
        loaded_us: when the load began. Rows scheduled before it only primed the pipeline.
        reports_rows: whether the pipeline's lines contain the number of rows of a batch (`scenario.cell.counts_rows`).
    """

    timeline: Sequence[Line]
    progress: Sequence[Line]
    seen_us: Ints
    latency_us: Ints
    loaded_us: int
    reports_rows: bool

    @classmethod
    def of(
        cls,
        timeline: Sequence[Line],
        progress: Sequence[Line],
        seen_us: Ints,
        latency_us: Ints,
        loaded_us: int,
        reports_rows: bool,
    ) -> Observed:
        """Sorts rows that are in any order."""
        order = np.argsort(seen_us, kind="stable")
        return cls(timeline, progress, seen_us[order], latency_us[order], loaded_us, reports_rows)


def recoveries(faults: Sequence[Line], observed: Observed) -> list[Recovery]:
    """The recovery from each fault.

    Args:
        faults: the faults that acted, in order of time, as in a report: `t_us`, `batch`, `fault`.
        observed: the record of the run.
    """
    if not faults:
        return []
    limit_us = _limit_us(observed, int(faults[0]["t_us"]))
    ends = [int(fault["t_us"]) for fault in faults[1:]]
    begun = -1
    found = []
    for fault, end_us in zip(faults, [*ends, None], strict=True):
        begun = max(begun, -1 if fault["batch"] is None else int(fault["batch"]))
        found.append(_recovery(fault, end_us, begun, observed, limit_us))
    return found


def of_run(faults: Sequence[Line], found: Sequence[Recovery], observed: Observed) -> Recovery:
    """One recovery for a whole run: from its first fault to the first new row.

    Later faults before that row are part of it.
    It has all replayed rows of the run, and the longest gap from the load's first row on. Between priming and load
    there are no rows to see. A gap after a fault counts even if it came before that row, and so does the time to the
    first new row, which later faults interrupt.
    """
    loaded = np.flatnonzero(observed.seen_us - observed.latency_us >= observed.loaded_us)
    seen_us = observed.seen_us[int(loaded[0]) :] if len(loaded) else observed.seen_us[:0]
    gap = float(np.max(np.diff(seen_us))) / US_PER_MS if len(seen_us) > 1 else None
    if not faults:
        return Recovery(longest_gap=gap)
    last = next((at for at, marks in enumerate(found) if marks.first_visible is not None), len(found) - 1)
    first = merged([int(fault["t_us"]) for fault in faults[: last + 1]], found[: last + 1])
    gaps = [each for each in (gap, first.first_visible, *(marks.longest_gap for marks in found)) if each is not None]
    return replace(first, longest_gap=max(gaps, default=None), replayed_rows=_sum(found))


def merged(at_us: Sequence[int], found: Sequence[Recovery]) -> Recovery:
    """The recovery from one outage with several faults (a fault, and faults in its replay).

    It counts from the first fault to the marks of the last.
    """
    first, last = found[0], found[-1]
    later = (at_us[-1] - at_us[0]) / US_PER_MS
    return Recovery(
        detect=first.detect,
        restart=None if last.restart is None else later + last.restart,
        first_visible=None if last.first_visible is None else later + last.first_visible,
        caught_up=None if last.caught_up is None else later + last.caught_up,
        longest_gap=max((marks.longest_gap for marks in found if marks.longest_gap is not None), default=None),
        replayed_rows=_sum(found),
    )


def _recovery(fault: Line, end_us: int | None, begun: int, observed: Observed, limit_us: float | None) -> Recovery:
    fault_us = _acted_us(fault, observed)

    def inside(t_us: int) -> bool:
        return t_us > fault_us and (end_us is None or t_us < end_us)

    answers = [line for line in observed.timeline if line["event"] in ANSWERS and inside(line["t_us"])]
    answer = min(answers, key=lambda line: int(line["t_us"]), default=None)
    restarts = [int(line["t_us"]) for line in observed.progress if line["kind"] == RUNNING and inside(line["t_us"])]
    restarted = min(restarts, default=None)
    continued = fault["fault"] != RANDOM_KILL and answer is not None and answer["event"] == events.PIPELINE_CONTINUED
    detected = fault_us if fault["fault"] == RANDOM_KILL else None if answer is None else int(answer["t_us"])
    # Rows that were visible before the fault may be seen a moment after it. New rows come from the next attempt or,
    # after a pause, from the continued process.
    resumed = detected if continued and restarted is None else restarted
    rows = observed.seen_us[(observed.seen_us > fault_us) & (observed.seen_us < (end_us or np.inf))]
    visible = None if resumed is None else min(rows[rows > resumed].tolist(), default=None)
    edges = np.array([fault_us, *rows.tolist(), *([] if end_us is None else [end_us])])
    return Recovery(
        detect=_since(fault_us, detected),
        restart=_since(fault_us, restarted),
        first_visible=_since(fault_us, visible),
        caught_up=_since(fault_us, _caught_up(observed, limit_us, visible, end_us)),
        longest_gap=float(np.max(np.diff(edges))) / US_PER_MS if len(edges) > 1 else None,
        replayed_rows=_replayed(observed, restarted, end_us, begun, continued),
    )


def _acted_us(fault: Line, observed: Observed) -> int:
    """When a fault took its broker away; the time of its hit for every other fault."""
    hit_us = int(fault["t_us"])
    lost = (line for line in observed.timeline if line["event"] in BROKER_LOST and line.get("hit_us") == hit_us)
    return max((int(line["t_us"]) for line in lost), default=hit_us)


def _limit_us(observed: Observed, fault_us: int) -> float | None:
    """The p99 of the load's rows from before the first fault; None without such rows."""
    scheduled = observed.seen_us - observed.latency_us
    before = observed.latency_us[(observed.seen_us < fault_us) & (scheduled >= observed.loaded_us)]
    return Distribution.of(before.astype(np.float64)).p99


def _caught_up(observed: Observed, limit_us: float | None, visible_us: int | None, end_us: int | None) -> int | None:
    """The time of the first row after which, for CALM_S, no row was late.

    A late row counts from the moment at which it became late, so a silence is not calm.
    """
    if limit_us is None or visible_us is None:
        return None
    new = observed.seen_us >= visible_us
    seen, latency = observed.seen_us[new], observed.latency_us[new]
    late = latency > limit_us
    became, over = seen[late] - latency[late] + limit_us, seen[late]
    good = seen[~late]
    last_us = int(seen[-1]) if end_us is None else end_us
    at = 0
    while at < len(good):
        t_us = int(good[at])
        if t_us + CALM_US > last_us:
            return None
        ends = over[(became < t_us + CALM_US) & (over > t_us)]
        if len(ends) == 0:
            return t_us
        at = int(np.searchsorted(good, ends.max()))
    return None


def _replayed(
    observed: Observed, restarted_us: int | None, end_us: int | None, begun: int, continued: bool
) -> int | None:
    """Rows of replayed batches that were completed after the restart.

    Replayed are the batches up to `begun`, or up to the batch that an attempt left open.
    0 where the process went on, None where it is unknown.
    """
    if not observed.reports_rows:
        return None
    if restarted_us is None:
        return 0 if continued else None
    done = [line for line in observed.progress if line["kind"] == SINK]
    if not done:
        return None
    left = [line["open_batch"] for line in observed.progress if line.get("open_batch") is not None
            and line["t_us"] < restarted_us]  # fmt: skip
    begun = max([begun, *left, *(line["batch"] for line in done if line["t_us"] < restarted_us)])
    return sum(
        int(line["rows"])
        for line in done
        if line["t_us"] > restarted_us and (end_us is None or line["t_us"] < end_us) and line["batch"] <= begun
    )


def _sum(found: Sequence[Recovery]) -> int | None:
    rows = [marks.replayed_rows for marks in found if marks.replayed_rows is not None]
    return sum(rows) if rows else None


def _since(fault_us: int, t_us: int | None) -> float | None:
    return None if t_us is None else (t_us - fault_us) / US_PER_MS
