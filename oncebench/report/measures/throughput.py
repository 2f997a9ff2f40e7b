"""Computes the throughput of a run from its record and the rows that a committed reader saw."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadgen.session import EVENTS_PER_SESSION
from oncebench.record import Record
from oncebench.scenario.cell import Cell

EVENTS_PER_ROW = 5


def throughput(seen_us: npt.NDArray[np.int64], record: Record, cell: Cell) -> dict[str, float | None]:
    """Visible events and sessions per second, from the load's start to the last new row.

    For a flat-out load, which was there first, it counts from the start of the query.
    """
    # An attempt that only loaded open sessions into the state ran before the load.
    running = [line["t_us"] for line in record.progress.items
               if line["kind"] == "running" and line["t_us"] >= record.plan.started_us]  # fmt: skip
    start_us = (running[0] if running else None) if cell.rate == "max" else record.plan.started_us
    if len(seen_us) == 0 or start_us is None or int(np.max(seen_us)) <= start_us:
        return {"events_per_s": None, "sessions_per_s": None}
    seconds = (int(np.max(seen_us)) - start_us) / 1e6
    per_s = len(seen_us) * EVENTS_PER_ROW / seconds
    return {"events_per_s": round(per_s, 1), "sessions_per_s": round(per_s / EVENTS_PER_SESSION, 2)}
