"""What was done to a run, in order of time, and what came of each deed, as it stands in a report.

Promise: every hit of a failpoint, every random kill, and every fault that was asked for and not hit is told once, with
what its nemesis noted (`noted`) and why it tested nothing, if so (`untested`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncebench.audit.not_exercised import OVER, Line, by_fault, notes_of
from oncebench.record import Record
from oncebench.scenario.fault_matrix import RANDOM_KILL

# The supervisor's own lines of the life on which a nemesis acted: every report of a fault would have them.
_LIVES = "pipeline-"


def faults_of(record: Record) -> list[dict[str, Any]]:
    """One object for each fault: `point`, `batch`, `hit`, `fault`, `t_us`, `noted`, `untested`."""
    hits, asked = record.hits.items, record.cell["cell"]["faults"]
    timeline = record.timeline.items
    untested = by_fault(hits, asked, timeline, record.progress.items)
    done: list[dict[str, Any]] = [
        {
            "point": hit["point"], "batch": hit["batch"], "hit": True, "fault": hit["fault"], "t_us": hit["t_us"],
            "noted": [_told(record.path, line) for line in notes_of(hit, hits, timeline)
                      if not line["event"].startswith(_LIVES) and line["event"] != OVER],
            "untested": [without(record.path, each) for each in why],
        }
        for hit, why in zip(hits, untested, strict=False)
    ]  # fmt: skip
    for line in timeline:
        if line["event"] == "random-kill":
            landed = line["landed"] or {"point": None, "batch": None}
            done.append(
                {**landed, "hit": True, "fault": RANDOM_KILL, "t_us": line["t_us"], "noted": [], "untested": []}
            )
    done.sort(key=lambda fault: int(fault["t_us"]))
    missed = [
        {"point": text.split(":")[0], "batch": None, "hit": False, "fault": text, "t_us": None, "untested": why}
        for text, why in zip(asked[len(hits) :], untested[len(hits) :], strict=True)
    ]
    return done + missed


def without(folder: Path, text: str) -> str:
    """A text with what lies in the run folder by its place there: where that folder is is nobody's business."""
    return text.replace(f"{folder.resolve()}/", "")


def _told(folder: Path, line: Line) -> str:
    """`refused: why`, or the event with what else it says."""
    if "why" in line:
        return without(folder, f"{line['event']}: {line['why']}")
    more = [f"{name} {value}" for name, value in line.items() if name not in ("t_us", "event", "hit_us", "fault")]
    return without(folder, f"{line['event']}{': ' if more else ''}{', '.join(more)}")
