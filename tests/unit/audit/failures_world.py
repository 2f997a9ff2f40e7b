"""Small runs with failures.

Each session ends in a batch of its own, or below a position of its own. Batch n takes the second from n to n + 1 after
the start of the load, and its line comes at the end of it. The last event of session n is in batch n.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from oncebench.audit.python.attribution import excuses
from oncebench.audit.python.audit import audit
from oncebench.audit.python.model import expected_of
from oncebench.audit.verdict import Judgement, judge
from oncebench.record import Record
from oncebench.record.json_lines import Lines
from tests.unit.audit.audit_world import STARTED_US, VisibleRow, make_world
from tests.unit.audit.test_verdict import JudgedCell, make_record

SESSIONS = 12
WORLD = make_world(SESSIONS, 1)
LAST = 99 * SESSIONS  # the offset of the last event of session 0
Line = dict[str, Any]


def at(second: float) -> int:
    """A time in epoch µs, from the second of the load."""
    return STARTED_US + round(second * 1e6)


def batch(number: int, until_s: float, began_s: float | None = None, **more: Any) -> Line:
    """The line of batch `number`, written at `until_s`; by default it began a second before."""
    began_us = at(until_s - 1 if began_s is None else began_s)
    start = 0 if number == 0 else LAST + number
    offsets = {"start_offsets": {"0": start}, "end_offsets": {"0": LAST + number + 1}}
    return {"kind": "batch", "batch": number, "t_us": at(until_s), "began_us": began_us, **offsets, **more}


def batches(seconds: dict[int, float] | None = None) -> list[Line]:
    """The lines of all batches; `seconds` has other times than the usual ones."""
    return [batch(number, (seconds or {}).get(number, number + 1)) for number in range(SESSIONS)]


def positions(*reported: tuple[float, int]) -> list[Line]:
    """Lines of an engine without batches: (second, number of sessions whose end has been read)."""
    return [
        {"kind": "position", "t_us": at(second), "read_us": at(second), "end_offsets": {"0": LAST + sessions}}
        for second, sessions in reported
    ]


def event(name: str, second: float, **more: Any) -> Line:
    return {"event": name, "t_us": at(second), **more}


def hit(fault: str, number: int, second: float, life: int = 7) -> Line:
    point, action = fault.split(":")[:2]
    return {"fault": fault, "point": point, "batch": number, "action": action, "t_us": at(second), "life": life}


def without(session: int) -> list[VisibleRow]:
    return [row for row in WORLD.rows if row not in WORLD.of(session)]


def twice(session: int) -> list[VisibleRow]:
    return [*WORLD.rows, *WORLD.of(session)]


def run(rows: Iterable[VisibleRow], progress: Sequence[Line], *events: Line, hits: Sequence[Line] = ()) -> Record:
    """A drained run that began with pid 7."""
    timeline = [event("pipeline-started", -9, pid=7, tells_over=True), *events, event("drained", 600)]
    record = make_record(WORLD, rows, hits=Lines(tuple(hits)), timeline=Lines(tuple(timeline)))
    return replace(record, progress=Lines(tuple(progress)))


def judged(record: Record, guarantee: str, *faults: str, random_kills: int = 0) -> Judgement:
    cell = JudgedCell(guarantee, faults=faults, random_kills=random_kills)
    found = excuses(record, expected_of(record), guarantee)
    return judge(audit(record), record, cell, excuses=found)
