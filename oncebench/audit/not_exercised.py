"""What of a run tested nothing, fault by fault: not hit, hit elsewhere, nothing to act on, cut short, not run again.

Promise: pure functions of what the run recorded. A nemesis's note belongs to the hit that it names (`hit_us`), however
long after it was written: the next fault of a chain may have been hit meanwhile. What can go wrong: notes of older runs
name the fault alone; they belong to its newest hit before them. Nor do older runs tell whether an act came to its end
(`tells_over` of a start says that a run does): of those it is believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oncebench.delivery.failpoints import KILL, parse_fault

Line = Mapping[str, Any]
IDLE, OVER = "nemesis-idle", "nemesis-over"
# Once Spark's commit log has a batch, a death does not bring it back.
NO_REPLAY_AFTER = frozenset({"after-commit-log"})


def notes_of(hit: Line, hits: Sequence[Line], timeline: Sequence[Line]) -> list[Line]:
    """What a nemesis noted of its deed at this hit."""
    return [line for line in timeline if _hit_of(line, hits) is hit]


def of_no_hit(hits: Sequence[Line], timeline: Sequence[Line]) -> list[str]:
    """What found nothing to act on, of hits that the record does not have."""
    return [_idle(line) for line in timeline if line.get("event") == IDLE and _hit_of(line, hits) is None]


def by_fault(
    hits: Sequence[Line], asked: Sequence[str], timeline: Sequence[Line], progress: Sequence[Line]
) -> list[list[str]]:
    """For each hit, and then for each fault that was asked for and not hit, why it tested nothing; empty: it did."""
    tells_over = any(line.get("tells_over") for line in timeline)
    again = {line.get("batch") for line in progress if line.get("kind") == "batch"}
    reasons: list[list[str]] = []
    for number, hit in enumerate(hits):
        own = _elsewhere(hit, asked[number]) if number < len(asked) else [_unasked(hit)]
        notes = notes_of(hit, hits, timeline)
        own += [_idle(line) for line in notes if line.get("event") == IDLE]
        ended = any(line.get("event") in (IDLE, OVER) for line in notes)
        if tells_over and hit["action"] != KILL and not ended:  # a kill is the pipeline's own, and no act
            own.append(f"the nemesis of the fault {hit['fault']} did not act to its end")
        if _must_replay(hit) and hit["batch"] not in again:
            own.append(_not_done(hit))
        reasons.append(own)
    return reasons + [[f"the fault {fault} was not hit"] for fault in asked[len(hits) :]]


def _hit_of(line: Line, hits: Sequence[Line]) -> Line | None:
    if "hit_us" in line:
        return next((hit for hit in hits if hit["t_us"] == line["hit_us"]), None)
    if line.get("event") != IDLE:
        return None
    return next((hit for hit in reversed(hits) if hit["fault"] == line["fault"] and hit["t_us"] <= line["t_us"]), None)


def _idle(line: Line) -> str:
    return f"the fault {line['fault']} found nothing to act on: {line['why']}"


def _unasked(hit: Line) -> str:
    return f"the fault {hit['fault']} acted and was not asked for"


def _not_done(hit: Line) -> str:
    if hit["action"] == KILL:
        return f"batch {hit['batch']} was not run again after the kill at {hit['point']}"
    return f"batch {hit['batch']} was not done after the fault {hit['fault']}"


def _elsewhere(hit: Line, text: str) -> list[str]:
    """Whether a hit is not what was asked for; faults act in the order in which they were asked for."""
    fault = parse_fault(text)
    if (hit["fault"], hit["point"], hit["action"]) != (str(fault), fault.point, fault.action):
        what = f"{hit['fault']} ({hit['action']} at {hit['point']})"
        return [f"the fault {fault} was asked for, {what} acted in its place"]
    if fault.batch is not None and hit["batch"] != fault.batch:
        return [f"the fault {fault} acted in batch {hit['batch']}"]
    if hit.get("rows") == 0:
        return [f"the fault {fault} acted in batch {hit['batch']}, where no row was at stake"]
    return []


def _must_replay(hit: Line) -> bool:
    """Whether the hit must bring its batch back: no `batch` line can have been written before it, so one shows that."""
    return hit["action"] != "stop" and hit["point"] not in NO_REPLAY_AFTER
