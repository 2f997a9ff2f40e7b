"""How often the pipeline died, and whether anybody had asked for it: a pure function of timeline and hits.

Promise: each death that the supervisor noted is counted once. It was asked for if it was a random kill, or if that
very life had met a fault (a hit names its life by the session of processes, which is the pid that was started): one
that a failpoint killed, or one that did not survive what a nemesis did. Every other death is unasked, with what is
known of its cause; such a run has measured something else as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oncebench.delivery.failpoints import KILL

KILLED, RANDOM, FAILED = "pipeline-killed", "random-kill", "pipeline-failed"


@dataclass(frozen=True)
class Unasked:
    """A death that nobody asked for. `exit_code` is None where a signal ended the pipeline, `signal` otherwise."""

    exit_code: int | None
    signal: int | None
    why: str
    after_start_s: float | None

    def __str__(self) -> str:
        how = f"signal {self.signal}" if self.signal is not None else f"exit code {self.exit_code}"
        return how if self.after_start_s is None else f"{how}, {self.after_start_s:.1f} s after its start"


@dataclass(frozen=True)
class Deaths:
    """All deaths of a run: how many were asked for, how many of them were kills, by a failpoint or a nemesis."""

    asked: int = 0
    by_failpoint: int = 0
    unasked: tuple[Unasked, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As it stands in a report."""
        told = [{**asdict(death), "told": str(death)} for death in self.unasked]
        return {"asked": self.asked, "unasked": len(told), "each_unasked": told}


def deaths(timeline: Sequence[Mapping[str, Any]], hits: Sequence[Mapping[str, Any]]) -> Deaths:
    """The deaths of a run.

    Args:
        timeline: the supervisor's lines.
        hits: the failpoints' lines.
    """
    met = {hit.get("life") for hit in hits} - {None}
    killed = {hit.get("life") for hit in hits if hit["action"] == KILL} - {None}
    asked, by_failpoint, unasked = 0, 0, []
    start: Mapping[str, Any] = {}
    for line in timeline:
        event = line.get("event")
        if event == "pipeline-started":
            start = line
        if event not in (KILLED, RANDOM, FAILED):
            continue
        by_failpoint += event == KILLED or start.get("pid") in killed
        if event in (KILLED, RANDOM) or start.get("pid") in met:
            asked += 1
        else:
            unasked.append(_unasked(line, start))
    return Deaths(asked, by_failpoint, tuple(unasked))


def _unasked(line: Mapping[str, Any], start: Mapping[str, Any]) -> Unasked:
    code: int | None = line.get("exit_code")
    since = round((line["t_us"] - start["t_us"]) / 1e6, 1) if "t_us" in start else None
    why = str(line.get("why", ""))
    if code is not None and code < 0:
        return Unasked(None, -code, why, since)
    return Unasked(code, None, why, since)
