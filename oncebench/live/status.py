"""The state of a running cell, as the live view displays it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Phase:
    """A phase of a run, and what the run waits for in it (empty: the figures show that)."""

    name: str
    waits_for: str = ""


# In the order of a run. `docs/reading_the_tables.md` describes them.
STARTING = Phase("starting", "waiting for the pipeline to start the query")
PRELOADING = Phase("preloading", "waiting for the pipeline to read the sessions that stay open")
WARMING_UP = Phase("warming up", "sessions ahead of the load")
LOADING = Phase("loading")
DRAINING = Phase("draining", "waiting for the last rows")
STOPPING = Phase("stopping", "waiting for the pipeline to finish its batch and stop")
READING = Phase("reading", "every row and event for the audit")
JUDGING = Phase("judging", "two auditors check every row")


@dataclass(frozen=True)
class RunStatus:
    """The state of a run at one moment.

    Attributes:
        phase: the current phase.
        load, observer: their newest status lines; empty before the first line.
        batch: the newest progress line of a batch; empty before the first batch.
        lag: events that Kafka has acknowledged and no finished batch has read; None before the first batch.
        fault: the newest fault (`NewestFault.describe`); empty before the first fault.
        load_s: planned duration of the load; None if the load has no rate.
        trigger_s: time between micro-batches; 0 if each follows the one before at once.
    """

    phase: Phase
    load: Mapping[str, Any] = field(default_factory=dict)
    observer: Mapping[str, Any] = field(default_factory=dict)
    batch: Mapping[str, Any] = field(default_factory=dict)
    lag: int | None = None
    fault: str = ""
    load_s: float | None = None
    trigger_s: float = 0.0

    @property
    def load_counts(self) -> Mapping[str, Any]:
        """The load's counts: its newest status, or its summary once it has ended."""
        counts: Mapping[str, Any] = self.load.get("summary", self.load)
        return counts


Show = Callable[[RunStatus], None]
