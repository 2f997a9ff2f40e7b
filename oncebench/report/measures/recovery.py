"""How long each fault kept rows from being seen: pure functions of what was recorded.

The marks of a recovery, each in milliseconds after its fault: `detect` (the supervisor saw the death; 0 for a random
kill, which is its own doing; for a pipeline that was stopped, when it was let go on), `restart` (process back: the
first new process has its query running), `first_visible` (first new row that a committed reader saw), `caught_up` (from
here on no row was later than the p99 of before the first fault, for CALM_S). `longest_gap` is the longest time without
a new row, `replayed_rows` how many rows were made again; None throughout where the pipeline tells no rows.

A fault's time ends at the next fault; whatever the pipeline did in between is taken for that fault's doing, also a
death that nobody asked for. What did not happen by then, or cannot be told, is None. So `caught_up` is None wherever
the next fault, or the end of the load, comes sooner than CALM_S after the recovery, as in a chain of faults.

Marks as in Kafka's and Redpanda's chaos tests; never starting after detection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.scenario.fault_matrix import RANDOM_KILL

Ints = npt.NDArray[np.int64]
Line = Mapping[str, Any]
US_PER_MS = 1000.0
# One good batch or two may be luck: some ten batches of a second each are not. Not for ever, since of a healthy run,
# too, one row in a hundred is later than its p99.
CALM_S = 10.0
CALM_US = round(CALM_S * 1e6)
CONTINUED = "pipeline-continued"
# What the supervisor notes when it answers a fault; the last is the clean stop that the nemesis `end` asks for.
ANSWERS = ("pipeline-killed", "pipeline-failed", CONTINUED, "random-kill", "zombie-left", "pipeline-stopped")


@dataclass(frozen=True)
class Recovery:
    """Milliseconds after the fault, and rows; None where it did not happen or was not seen.

    `replayed_rows`: rows that batches which had begun before the fault, or which the life that died of it has left
    open, made again after the restart, whether they were written again or only used up; a replay that was itself killed
    counts where it was brought to its end.
    """

    detect: float | None = None
    restart: float | None = None
    first_visible: float | None = None
    caught_up: float | None = None
    longest_gap: float | None = None
    replayed_rows: int | None = None

    def as_json(self) -> dict[str, float | None]:
        """As it stands in a report."""
        return {name: round(value, 1) if isinstance(value, float) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Watched:
    """What a run recorded of its pipeline's lives and of its rows.

    Attributes:
        timeline: the supervisor's lines.
        progress: the pipeline's lines.
        seen_us: when each row was first seen, ascending.
        latency_us: latency of the same rows.
        loaded_us: when the load began: rows scheduled before it only primed the pipeline.
        tells_rows: whether the pipeline's lines say how many rows a batch has made (`scenario.cell.counts_rows`).
    """

    timeline: Sequence[Line]
    progress: Sequence[Line]
    seen_us: Ints
    latency_us: Ints
    loaded_us: int
    tells_rows: bool

    @classmethod
    def of(
        cls,
        timeline: Sequence[Line],
        progress: Sequence[Line],
        seen_us: Ints,
        latency_us: Ints,
        loaded_us: int,
        tells_rows: bool,
    ) -> Watched:
        """The same from rows in any order."""
        order = np.argsort(seen_us, kind="stable")
        return cls(timeline, progress, seen_us[order], latency_us[order], loaded_us, tells_rows)


def recoveries(faults: Sequence[Line], watched: Watched) -> list[Recovery]:
    """The recovery from each fault.

    Args:
        faults: those that acted, in order of time, as they stand in a report: `t_us`, `batch`, `fault`.
        watched: the run.
    """
    if not faults:
        return []
    limit_us = _limit_us(watched, int(faults[0]["t_us"]))
    ends = [int(fault["t_us"]) for fault in faults[1:]]
    begun = -1
    found = []
    for fault, end_us in zip(faults, [*ends, None], strict=True):
        begun = max(begun, -1 if fault["batch"] is None else int(fault["batch"]))
        found.append(_recovery(fault, end_us, begun, watched, limit_us))
    return found


def of_run(faults: Sequence[Line], found: Sequence[Recovery], watched: Watched) -> Recovery:
    """One recovery for a whole run: from its first fault to the first new row, through whatever faults came before
    that row; with all replayed rows of the run, and its longest gap from the load's first row on: between priming and
    load there is nothing to see."""
    loaded = np.flatnonzero(watched.seen_us - watched.latency_us >= watched.loaded_us)
    seen_us = watched.seen_us[int(loaded[0]) :] if len(loaded) else watched.seen_us[:0]
    gap = float(np.max(np.diff(seen_us))) / US_PER_MS if len(seen_us) > 1 else None
    if not faults:
        return Recovery(longest_gap=gap)
    last = next((at for at, marks in enumerate(found) if marks.first_visible is not None), len(found) - 1)
    first = together([int(fault["t_us"]) for fault in faults[: last + 1]], found[: last + 1])
    return replace(first, longest_gap=gap, replayed_rows=_sum(found))


def together(at_us: Sequence[int], found: Sequence[Recovery]) -> Recovery:
    """The recovery from several faults of one outage (a fault, and those in its replay): from the first of them, to
    what the last brought."""
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


def _recovery(fault: Line, end_us: int | None, begun: int, watched: Watched, limit_us: float | None) -> Recovery:
    fault_us = int(fault["t_us"])

    def inside(t_us: int) -> bool:
        return t_us > fault_us and (end_us is None or t_us < end_us)

    answers = [line for line in watched.timeline if line["event"] in ANSWERS and inside(line["t_us"])]
    answer = min(answers, key=lambda line: int(line["t_us"]), default=None)
    restarts = [int(line["t_us"]) for line in watched.progress if line["kind"] == "running" and inside(line["t_us"])]
    restarted = min(restarts, default=None)
    continued = fault["fault"] != RANDOM_KILL and answer is not None and answer["event"] == CONTINUED
    detected = fault_us if fault["fault"] == RANDOM_KILL else None if answer is None else int(answer["t_us"])
    # Rows that were visible before the fault may be seen a moment after it; new ones come from the next life, or,
    # after a stop, from the process that was continued.
    resumed = detected if continued and restarted is None else restarted
    rows = watched.seen_us[(watched.seen_us > fault_us) & (watched.seen_us < (end_us or np.inf))]
    visible = None if resumed is None else min(rows[rows > resumed].tolist(), default=None)
    edges = np.array([fault_us, *rows.tolist(), *([] if end_us is None else [end_us])])
    return Recovery(
        detect=_since(fault_us, detected),
        restart=_since(fault_us, restarted),
        first_visible=_since(fault_us, visible),
        caught_up=_since(fault_us, _caught_up(watched, limit_us, visible, end_us)),
        longest_gap=float(np.max(np.diff(edges))) / US_PER_MS if len(edges) > 1 else None,
        replayed_rows=_replayed(watched, restarted, end_us, begun, continued),
    )


def _limit_us(watched: Watched, fault_us: int) -> float | None:
    """The p99 from before the first fault, of the load's own rows; None if there was none."""
    scheduled = watched.seen_us - watched.latency_us
    before = watched.latency_us[(watched.seen_us < fault_us) & (scheduled >= watched.loaded_us)]
    return float(np.percentile(before, 99)) if len(before) else None


def _caught_up(watched: Watched, limit_us: float | None, visible_us: int | None, end_us: int | None) -> int | None:
    """When the first row was seen from which on, for CALM_S, none was late; a late row counts from the moment at which
    it became late, so that a silence is no calm."""
    if limit_us is None or visible_us is None:
        return None
    new = watched.seen_us >= visible_us
    seen, latency = watched.seen_us[new], watched.latency_us[new]
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
    watched: Watched, restarted_us: int | None, end_us: int | None, begun: int, continued: bool
) -> int | None:
    """Rows of the batches up to `begun`, or up to what a life left open, that came to their end after the restart; 0
    where the process went on, None where nothing tells."""
    if not watched.tells_rows:
        return None
    if restarted_us is None:
        return 0 if continued else None
    done = [line for line in watched.progress if line["kind"] == "sink"]
    if not done:
        return None
    left = [line["open_batch"] for line in watched.progress if line.get("open_batch") is not None
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
