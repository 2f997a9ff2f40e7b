"""Follows the files that the processes of a run write, and derives positions and status."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncebench.live.newest_fault import NewestFault
from oncebench.live.status import Phase, RunStatus
from oncebench.record.json_lines import Tail


class RunProgress:
    """The progress of the run in `folder`.

    Attributes:
        sent_ahead: acknowledged events that were sent ahead of the load.
        batch: the newest progress line of a batch; empty before the first batch.
        position: per partition of the input, the offset up to which finished batches have read.
    """

    def __init__(self, folder: Path, load_s: float | None, trigger_s: float = 0.0) -> None:
        self._load_s, self._trigger_s = load_s, trigger_s
        self._load = Tail(folder / "load.jsonl")
        self._observer = Tail(folder / "observer.jsonl")
        self._pipeline = Tail(folder / "progress.jsonl")
        self._newest_fault = NewestFault(folder)
        self.sent_ahead = 0
        self.batch: Mapping[str, Any] = {}
        self.position: dict[str, int] = {}

    def update(self) -> None:
        """Reads the lines that the pipeline wrote since the last call."""
        for line in self._pipeline.fresh():
            if line["kind"] == "started":
                self.position = {}  # an attempt on an older checkpoint starts further back, and reports where
            elif line["kind"] == "batch":
                self.batch = line
                for partition, offset in line["end_offsets"].items():
                    self.position[partition] = max(offset, self.position.get(partition, 0))

    @property
    def batch_number(self) -> int:
        """The number of the newest batch; -1 before the first."""
        return int(self.batch.get("batch", -1))

    def has_batch_after(self, number: int) -> bool:
        """Whether a later batch than `number` is finished."""
        return self.batch_number > number

    @property
    def events_read(self) -> int:
        """Events that finished batches have read."""
        return sum(self.position.values())

    def has_read(self, ends: Mapping[str, int]) -> bool:
        """Whether finished batches have read every partition up to its end."""
        return all(self.position.get(partition, 0) >= end for partition, end in ends.items())

    def status(self, phase: Phase) -> RunStatus:
        """Returns the state of the run for the live view."""
        load = self._load.last()
        acknowledged = self.sent_ahead + load.get("summary", load).get("acknowledged", 0)
        return RunStatus(
            phase=phase,
            load=load,
            observer=self._observer.last(),
            batch=self.batch,
            lag=acknowledged - self.events_read if self.position else None,
            fault=self._newest_fault.describe(),
            load_s=self._load_s,
            trigger_s=self._trigger_s,
        )
