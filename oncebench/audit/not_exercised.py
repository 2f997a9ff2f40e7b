"""Finds, for each fault and each random kill, why the run did not exercise it.

The reasons for a fault: it was not hit, it was hit elsewhere, it had no target, it was cut short, or its batch was not
run again. For a random kill: the pipeline had nothing left to do, or no commit was held back although one should be.

Promise: pure functions of the record. A note of a fault belongs to the hit that it names (`hit_us`), however much later
it was written. The next fault of a chain may have been hit meanwhile.

What can go wrong: older runs record less. Their notes name only the fault, and belong to the newest hit of that fault
before them. They may not record whether a fault ran to its end, and then it is assumed. A run that does record the ends
has `tells_over` in a line of its timeline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from oncebench.delivery.failpoints import KILL, parse_fault
from oncebench.record import events
from oncebench.record.schema import BATCH

Line = Mapping[str, Any]
# The notes that end a fault.
_ENDS = (events.NEMESIS_IDLE, events.NEMESIS_OVER)
# The end of the reason why a run did not exercise a fault that it requested.
NOT_HIT = "was not hit"
# Once a batch is in Spark's commit log, a kill does not make Spark run it again.
NO_REPLAY_AFTER = frozenset({"after-commit-log"})

_NO_WORK = "the pipeline had read and committed everything. Make the load longer"
_NOT_HELD = "the pipeline committed no transaction in time, so the outage began without one that was held back"


def notes_of(hit: Line, hits: Sequence[Line], timeline: Sequence[Line]) -> list[Line]:
    """Returns the timeline lines that the fault of this hit wrote."""
    return [line for line in timeline if _hit_of(line, hits) is hit]


def ended_us(hit: Line, hits: Sequence[Line], timeline: Sequence[Line]) -> float:
    """Returns when the fault of this hit was over, in epoch µs.

    The time is infinite if the record does not show it.
    """
    notes = notes_of(hit, hits, timeline)
    return max((line["t_us"] for line in notes if line.get("event") in _ENDS), default=math.inf)


def without_a_hit(hits: Sequence[Line], timeline: Sequence[Line]) -> list[str]:
    """Returns the faults without a target whose hit is not in the record."""
    return [
        _idle(line) for line in timeline if line.get("event") == events.NEMESIS_IDLE and _hit_of(line, hits) is None
    ]


def by_fault(
    hits: Sequence[Line], requested: Sequence[str], timeline: Sequence[Line], progress: Sequence[Line]
) -> list[list[str]]:
    """Returns why each fault was not exercised; an empty list if it was.

    The hits come first, in their order, then the requested faults that were not hit.
    """
    records_ends = any(line.get("tells_over") for line in timeline)
    done = {line.get("batch") for line in progress if line.get("kind") == BATCH}
    reasons: list[list[str]] = []
    for number, hit in enumerate(hits):
        own = _elsewhere(hit, requested[number]) if number < len(requested) else [_not_requested(hit)]
        notes = notes_of(hit, hits, timeline)
        own += [_idle(line) for line in notes if line.get("event") == events.NEMESIS_IDLE]
        ended = any(line.get("event") in _ENDS for line in notes)
        if records_ends and hit["action"] != KILL and not ended:  # the pipeline kills itself, and writes no note
            own.append(f"the fault {hit['fault']} did not run to its end")
        if _must_replay(hit) and hit["batch"] not in done:
            own.append(_not_done(hit))
        reasons.append(own)
    return reasons + [[f"the fault {fault} {NOT_HIT}"] for fault in requested[len(hits) :]]


def of_random_kill(line: Line) -> list[str]:
    """Returns why the random kill of this line tested nothing.

    The list is empty if the kill tested something, and for older runs.
    """
    return [
        *([_NO_WORK] if line.get("idle") else []),
        *([_NOT_HELD] if line.get("commit_held") is False else []),
    ]


def of_random_kills(requested: int, timeline: Sequence[Line]) -> list[str]:
    """Returns why the random kills of a run were not exercised; an empty list if they were."""
    kills = [line for line in timeline if line.get("event") == events.RANDOM_KILL]
    missing = [f"{len(kills)} of {requested} random kills happened"] if len(kills) < requested else []
    untested = Counter(chain.from_iterable(map(of_random_kill, kills)))
    return [*missing, *(f"{count} of {len(kills)} random kills: {why}" for why, count in untested.items())]


def _hit_of(line: Line, hits: Sequence[Line]) -> Line | None:
    if "hit_us" in line:
        return next((hit for hit in hits if hit["t_us"] == line["hit_us"]), None)
    if line.get("event") != events.NEMESIS_IDLE:
        return None
    return next((hit for hit in reversed(hits) if hit["fault"] == line["fault"] and hit["t_us"] <= line["t_us"]), None)


def _idle(line: Line) -> str:
    return f"the fault {line['fault']} had no target: {line['why']}"


def _not_requested(hit: Line) -> str:
    return f"the fault {hit['fault']} acted without being requested"


def _not_done(hit: Line) -> str:
    if hit["action"] == KILL:
        return f"batch {hit['batch']} was not run again after the kill at {hit['point']}"
    return f"batch {hit['batch']} was not done after the fault {hit['fault']}"


def _elsewhere(hit: Line, text: str) -> list[str]:
    """Returns how a hit differs from the requested fault; faults act in the requested order."""
    fault = parse_fault(text)
    if (hit["fault"], hit["point"], hit["action"]) != (str(fault), fault.point, fault.action):
        acted = f"{hit['fault']} ({hit['action']} at {hit['point']})"
        return [f"the fault {fault} was requested, {acted} acted in its place"]
    if fault.batch is not None and hit["batch"] != fault.batch:
        return [f"the fault {fault} acted in batch {hit['batch']}"]
    if hit.get("rows") == 0:
        return [f"the fault {fault} acted in batch {hit['batch']}, which had no rows"]
    return []


def _must_replay(hit: Line) -> bool:
    """Whether the batch must run again; its `batch` line cannot be older than the hit."""
    return hit["action"] != "stop" and hit["point"] not in NO_REPLAY_AFTER
