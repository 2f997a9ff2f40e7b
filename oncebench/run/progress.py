"""Follows the files that the processes of a run write, and derives positions and status."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncebench.live.newest_fault import NewestFault
from oncebench.live.status import Phase, RunStatus
from oncebench.record.json_lines import Tail
from oncebench.record.schema import BATCH, READ, STARTED
from oncebench.run.statuses import Statuses, load_line, observer_line


class RunProgress:
    """The progress of the run in `folder`.

    Attributes:
        sent_ahead: acknowledged events that were sent ahead of the load.
        batch: the newest progress line of a batch; empty before the first batch.
        batch_s: how long the newest batch took; None before the first batch that an attempt reports with its time.
        position: per partition of the input, the offset up to which the pipeline has read and committed.
    """

    def __init__(
        self, folder: Path, load_s: float | None, trigger_s: float = 0.0, generators: int = 1, observers: int = 1
    ) -> None:
        self._load_s, self._trigger_s = load_s, trigger_s
        self._load = Statuses(folder, "load.jsonl", generators)
        self._observer = Statuses(folder, "observer.jsonl", observers)
        self._pipeline = Tail(folder / "progress.jsonl")
        self._newest_fault = NewestFault(folder)
        self.sent_ahead = 0
        self.batch: Mapping[str, Any] = {}
        self.batch_s: float | None = None
        self.position: dict[str, int] = {}

    def update(self) -> None:
        """Reads the lines that the pipeline wrote since the last call."""
        for line in self._pipeline.fresh():
            if line["kind"] == STARTED:
                self.position = {}  # an attempt on an older checkpoint starts further back, and reports where
            elif line["kind"] in READ:
                self.batch = line if line["kind"] == BATCH else self.batch
                if (took_ms := line.get("duration_ms", {}).get("triggerExecution")) is not None:
                    self.batch_s = took_ms / 1000
                for partition, offset in line["end_offsets"].items():
                    self.position[partition] = max(offset, self.position.get(partition, 0))

    def has_read_ahead(self) -> bool:
        """Whether everything that was sent ahead of the load is read and committed."""
        return self.events_read >= self.sent_ahead

    @property
    def last_row_us(self) -> int:
        """When an observer saw its newest row, epoch µs; 0 before the first."""
        newest: int = observer_line(self._observer.last()).get("last_row_us") or 0
        return newest

    @property
    def events_read(self) -> int:
        """Events that the pipeline has read and committed."""
        return sum(self.position.values())

    def has_read(self, ends: Mapping[str, int]) -> bool:
        """Whether the pipeline has read and committed every partition up to its end."""
        return all(self.position.get(partition, 0) >= end for partition, end in ends.items())

    def of_load(self) -> tuple[str, int]:
        """Returns a value that changes while the load makes progress.

        While events wait for Kafka, only acknowledgements are progress. A pause of the schedule is no standstill.
        """
        load = load_line(self._load.last())
        acknowledged = load.get("acknowledged", 0)
        if load.get("planned_by_now", 0) > acknowledged + load.get("failed", 0):
            return "acknowledged", acknowledged
        return "looked", load.get("t_us", 0)

    def status(self, phase: Phase) -> RunStatus:
        """Returns the state of the run for the live view."""
        load = load_line(self._load.last())
        acknowledged = self.sent_ahead + load.get("summary", load).get("acknowledged", 0)
        return RunStatus(
            phase=phase,
            load=load,
            observer=observer_line(self._observer.last()),
            batch=self.batch,
            lag=acknowledged - self.events_read if self.position else None,
            fault=self._newest_fault.describe(),
            load_s=self._load_s,
            trigger_s=self._trigger_s,
        )
