"""The faults of a run in order of time, each with its effects, as they stand in a report.

Promise: the list has each hit of a failpoint, each random kill, and each requested fault that was not hit exactly once.
`noted` holds what the fault recorded, `untested` why it tested nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncebench.audit.not_exercised import Line, by_fault, notes_of, of_random_kill
from oncebench.record import Record, events
from oncebench.redaction import redacted
from oncebench.scenario.matrix.families import RANDOM_KILL

# The supervisor's own lines on the attempt that a fault acted on: every fault would have them.
_SUPERVISOR = "pipeline-"


def faults_of(record: Record) -> list[dict[str, Any]]:
    """One object per fault: `point`, `batch`, `hit`, `fault`, `t_us`, `noted`, `untested`."""
    hits, requested = record.hits.items, record.cell["cell"]["faults"]
    timeline = record.timeline.items
    untested = by_fault(hits, requested, timeline, record.progress.items)
    done: list[dict[str, Any]] = [
        {
            "point": hit["point"], "batch": hit["batch"], "hit": True, "fault": hit["fault"], "t_us": hit["t_us"],
            "noted": [_note(record.path, line) for line in notes_of(hit, hits, timeline)
                      if not line["event"].startswith(_SUPERVISOR) and line["event"] != events.NEMESIS_OVER],
            "untested": [without_folder(record.path, each) for each in why],
        }
        for hit, why in zip(hits, untested, strict=False)
    ]  # fmt: skip
    for line in timeline:
        if line["event"] == events.RANDOM_KILL:
            landed = line["landed"] or {"point": None, "batch": None}
            done.append(
                {**landed, "hit": True, "fault": RANDOM_KILL, "t_us": line["t_us"], "noted": [],
                 "untested": of_random_kill(line)}
            )  # fmt: skip
    done.sort(key=lambda fault: int(fault["t_us"]))
    missed = [
        {"point": text.split(":")[0], "batch": None, "hit": False, "fault": text, "t_us": None, "untested": why}
        for text, why in zip(requested[len(hits) :], untested[len(hits) :], strict=True)
    ]
    return done + missed


def without_folder(folder: Path, text: str) -> str:
    """Returns the text with paths relative to the run folder, and without secrets.

    A report must reveal neither the path of the run folder nor secrets.
    """
    return redacted(text.replace(f"{folder.resolve()}/", ""))


def _note(folder: Path, line: Line) -> str:
    """`refused: why`, or the event with its other fields."""
    if "why" in line:
        return without_folder(folder, f"{line['event']}: {line['why']}")
    more = [f"{name} {value}" for name, value in line.items() if name not in ("t_us", "event", "hit_us", "fault")]
    return without_folder(folder, f"{line['event']}{': ' if more else ''}{', '.join(more)}")
