"""Counts the pipeline's exits, and which of them the run intended.

Promise: a pure function of timeline and hits. Each exit that the supervisor recorded is counted once. An exit was
intended if it was a random kill, or if the same attempt had hit a fault: a failpoint killed the attempt, or the attempt
did not survive a fault. An attempt counts as having survived a fault when AFTERMATH_US have passed
since the fault was over. A hit names its attempt
by the pid that was started, which is also its process session. Every other exit is unintended and comes with what is
known of its cause; such a run has also measured something else.

What can go wrong: the record does not show when a fault was over. Then every later exit of the attempt is intended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from oncebench.audit.not_exercised import ended_us
from oncebench.delivery.failpoints import KILL
from oncebench.record import events

_INTENDED = (events.PIPELINE_KILLED, events.RANDOM_KILL)
EXIT_EVENTS = frozenset({*_INTENDED, events.PIPELINE_FAILED})
# Kafka's clients send a request again after 30 s (`request.timeout.ms`), so a fault may have a consequence this long
# after its end.
AFTERMATH_US = 30_000_000


@dataclass(frozen=True)
class UnintendedExit:
    """An exit without a fault. `exit_code` is None after a signal; otherwise `signal` is None."""

    exit_code: int | None
    signal: int | None
    why: str
    after_start_s: float | None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> UnintendedExit:
        """Reads an exit from the field `deaths` of a report."""
        return cls(**{field.name: stored[field.name] for field in fields(cls)})

    def __str__(self) -> str:
        how = f"signal {self.signal}" if self.signal is not None else f"exit code {self.exit_code}"
        return how if self.after_start_s is None else f"{how}, {self.after_start_s:.1f} s after its start"


@dataclass(frozen=True)
class Exits:
    """All exits of a run.

    Attributes:
        intended: how many the run intended.
        by_failpoint: how many followed a kill by a failpoint or another fault.
        unintended: the others.
    """

    intended: int = 0
    by_failpoint: int = 0
    unintended: tuple[UnintendedExit, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Returns the field `deaths` of a report."""
        each = [asdict(one) for one in self.unintended]
        return {"asked": self.intended, "unasked": len(each), "each_unasked": each}


def exits_of(timeline: Sequence[Mapping[str, Any]], hits: Sequence[Mapping[str, Any]]) -> Exits:
    """Returns the exits of a run.

    Args:
        timeline: the supervisor's lines.
        hits: the failpoints' lines.
    """
    killed = {hit.get("life") for hit in hits if hit["action"] == KILL} - {None}
    intended, by_failpoint, unintended = 0, 0, []
    for line, start, was_intended in each_exit(timeline, hits):
        by_failpoint += line["event"] == events.PIPELINE_KILLED or start.get("pid") in killed
        if was_intended:
            intended += 1
        else:
            unintended.append(_unintended(line, start))
    return Exits(intended, by_failpoint, tuple(unintended))


def each_exit(
    timeline: Sequence[Mapping[str, Any]], hits: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], bool]]:
    """Yields for each exit: its line, the line of its start, and whether it was intended.

    The start is that of the exit's attempt. Its line is {} if there is none.
    """
    until_us: dict[int, float] = {}  # by attempt
    for hit in hits:
        if (pid := hit.get("life")) is not None:
            until_us[pid] = max(until_us.get(pid, -math.inf), ended_us(hit, hits, timeline) + AFTERMATH_US)
    start: Mapping[str, Any] = {}
    for line in timeline:
        event = line.get("event")
        if event == events.PIPELINE_STARTED:
            start = line
        elif event in EXIT_EVENTS:
            explained = "pid" in start and line["t_us"] <= until_us.get(start["pid"], -math.inf)
            yield line, start, event in _INTENDED or explained


def _unintended(line: Mapping[str, Any], start: Mapping[str, Any]) -> UnintendedExit:
    code: int | None = line.get("exit_code")
    after_start_s = round((line["t_us"] - start["t_us"]) / 1e6, 1) if "t_us" in start else None
    why = str(line.get("why", ""))
    if code is not None and code < 0:
        return UnintendedExit(None, -code, why, after_start_s)
    return UnintendedExit(code, None, why, after_start_s)
