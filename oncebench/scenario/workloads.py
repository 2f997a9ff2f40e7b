"""The workloads of a run, as data: what each needs of a cell, and how its load ends.

A workload consists of four parts with one name, and each room has one of them:

| part | file |
|---|---|
| the events that it plans | `loadgen/workloads.py` |
| the streaming query | `pipeline/workloads/` |
| the right answer | `oncebench/audit/python/workloads/` |
| the right answer, a second time | `oncebench/audit/sql/tables.py` |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.failpoints import FIRST_BATCH, Fault, parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.scenario.cell import Cell
from pipeline.config import RECORDS, SESSIONS, WINDOWS
from pipeline.workloads.settings import DELAY_MS, WINDOW_MS

# A chain of faults without a limit of the batches: a batch per trigger, and seconds of load per fault. A restart takes
# 10 to 20 s on two busy cores; after it come the seconds of the watermark, and two batches.
TRIGGER_MS, RATE, FAULT_S = 1000, 100.0, 30.0

# The generator's late events are an hour old. The watermark of the warm-up is at most some minutes older than the load,
# so it has passed every late event of the first 50 minutes, even if one batch reads the whole load.
LONGEST_S = 3_000.0


@dataclass(frozen=True)
class Workload:
    """The settings of a run that depend on its workload.

    Attributes:
        description: a few words for lists.
        closing_s: seconds from the last event of the load to the events that move the watermark beyond all of it;
            None: no row waits for a watermark.
        needs_warm_watermark: whether the pipeline must have a watermark before the load, and keep it.
        replays: whether the events are the lines of a user's file.
    """

    name: str
    description: str
    closing_s: float | None = None
    needs_warm_watermark: bool = False
    replays: bool = False

    def why_not(self, cell: Cell) -> str | None:
        """Why the cell cannot run this workload; None if it can."""
        if self.replays:
            return self._why_not_replayed(cell)
        if cell.records:
            return "it takes no file. Leave out --records"
        if not self.needs_warm_watermark:
            return None
        if cell.rate == "max":
            return "its late events need a watermark before the load begins. Give a --rate in events/s"
        if cell.load_s > LONGEST_S:
            return (
                f"its late events are certainly late for {LONGEST_S / 60:.0f} minutes, and this load takes "
                f"{cell.load_s / 60:.0f}. Give a shorter --duration, or fewer --sessions"
            )
        if cell.generators > 1:
            return (
                "each generator waits for its own older events and not for the older events of the others, and the "
                "watermark would drop events that are in time. Leave out --generators"
            )
        if cell.open_sessions:
            return "it has no sessions in the state. Leave out --open-sessions"
        if cell.max_events_per_batch is not None:
            return (
                "a limited batch may read one partition far ahead of another, and the watermark would drop events that "
                "are in time. Leave out --max-events-per-batch"
            )
        for text in cell.faults:
            if (why := self.why_not_fault(parse_fault(text))) is not None:
                return f"fault {text} {why}. Choose another fault"
        return None

    def why_not_fault(self, fault: Fault) -> str | None:
        """Why a run of this workload cannot have this fault; None if it can."""
        if self.needs_warm_watermark and FAULTS[fault.action].replaces_checkpoint:
            return "takes the watermark away with the checkpoint"
        return None

    def _why_not_replayed(self, cell: Cell) -> str | None:
        if not cell.records:
            return "it needs a file. Give --records FILE"
        if cell.open_sessions:
            return "it has no sessions in the state. Leave out --open-sessions"
        if cell.record_bytes:
            return "the records have their own sizes. Leave out --record-bytes"
        if cell.skew:
            return "the records are spread by their own keys. Leave out --skew, and give --key FIELD"
        return None


def timed_load(faults: Sequence[str], kills: int) -> dict[str, Any]:
    """The fields of a cell whose load lasts as long as its faults and restarts.

    The cell has no limit of its batches.
    """
    lasts_s = sum(FAULT_S + (parse_fault(text).seconds or 0.0) for text in faults) + FAULT_S * kills
    sessions = math.ceil((FIRST_BATCH * TRIGGER_MS / 1000 + lasts_s) * RATE / EVENTS_PER_SESSION)
    return {"sessions": sessions, "rate": RATE, "trigger_ms": TRIGGER_MS}


WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(SESSIONS, "20 rows per session of 100 events, when all have arrived"),
        Workload(
            WINDOWS,
            f"one row per key and event-time window of {WINDOW_MS} ms, when the watermark has passed it",
            # The last window may end a whole window after the last event. One second for the granularity of clocks.
            closing_s=(WINDOW_MS + DELAY_MS) / 1000 + 1.0,
            needs_warm_watermark=True,
        ),
        Workload(RECORDS, "each line of --records FILE as one row", replays=True),
    )
}
