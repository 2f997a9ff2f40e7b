"""Computes the throughput of a run from its record and the rows that a committed reader saw."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadgen.session import EVENTS_PER_SESSION
from oncebench.record import Record
from oncebench.record.schema import RUNNING
from oncebench.report.measures.timeline import events_after
from oncebench.scenario.cell import Cell


def throughput(
    seen_us: npt.NDArray[np.int64],
    record: Record,
    cell: Cell,
    measured_from_us: int,
    events: int,
) -> dict[str, float | None]:
    """Events and sessions per second, up to the last new row.

    Visible events count from the load's start. A flat-out load is there first. It counts from the query's start or,
    with a warm-up time, from the end of that: then the events count that were not read yet.

    Args:
        seen_us: when each row was first seen, epoch µs.
        measured_from_us: when the measurement began, epoch µs; 0 in older runs.
        events: the input events of these rows.
    """
    # An attempt that only loaded open sessions into the state ran before the load.
    running = [line["t_us"] for line in record.progress.items
               if line["kind"] == RUNNING and line["t_us"] >= record.plan.started_us]  # fmt: skip
    start_us = (running[0] if running else None) if cell.rate == "max" else record.plan.started_us
    if len(seen_us) == 0 or start_us is None or int(np.max(seen_us)) <= max(start_us, measured_from_us):
        return {"events_per_s": None, "sessions_per_s": None}
    if cell.rate == "max" and measured_from_us > start_us:
        start_us, events = measured_from_us, events_after(record, measured_from_us)
    per_s = events / ((int(np.max(seen_us)) - start_us) / 1e6)
    return {"events_per_s": round(per_s, 1), "sessions_per_s": round(per_s / EVENTS_PER_SESSION, 2)}
