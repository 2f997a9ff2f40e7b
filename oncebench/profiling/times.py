"""Computes the time of a batch and of its steps, by Spark's and the sink's own clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from oncebench.record.schema import BATCH, SINK
from oncebench.report.measures.batch_times import ended_us
from oncebench.report.measures.checkpoint import Progress

# Spark's names of the steps of a trigger (`durationMs` of a progress event), by the words of this table.
_STEPS: Mapping[str, tuple[str, ...]] = {
    "planning": ("latestOffset", "getBatch", "queryPlanning"),
    "offset log": ("walCommit",),
    "run": ("addBatch",),
    "commit log": ("commitOffsets", "commitBatch"),
}
# The sink's names of its steps. `tasks` includes the steps that tasks report themselves, from `prepare` to `flush`.
_SINK_NAMES = {"run": "tasks"}
# Sums of other steps.
_NOT_STEPS = ("task", "total")


@dataclass(frozen=True)
class BatchTimes:
    """Medians in ms of the batches that the run measured; None without such a batch.

    Attributes:
        batches: the number of batches with input since the end of the warm-up. The CPU time is divided by it.
        total: the whole trigger.
        steps: Spark's steps.
        sink: the sink's steps, which are part of Spark's `run`.
    """

    batches: int
    total: float | None
    steps: Mapping[str, float]
    sink: Mapping[str, float]


def batch_times(progress: Progress) -> BatchTimes:
    """Computes the times from the lines of progress.jsonl."""
    settled = progress.settled()
    spent = [line["duration_ms"] for line in settled]
    steps = {
        step: median(sum(each.get(name, 0) for name in names) for each in spent)
        for step, names in _STEPS.items()
        if spent
    }
    sink: dict[str, list[float]] = {}
    numbers = {line["batch"] for line in settled}
    for line in progress.lines:
        if line["kind"] == SINK and line["batch"] in numbers:
            for step, ms in line["timings_ms"].items():
                sink.setdefault(step, []).append(ms)
    return BatchTimes(
        sum(_counts(line, progress.from_us) for line in progress.lines),
        median(each["triggerExecution"] for each in spent) if spent else None,
        steps,
        {_SINK_NAMES.get(step, step): median(values) for step, values in sink.items() if step not in _NOT_STEPS},
    )


def _counts(line: Mapping[str, Any], from_us: int) -> bool:
    return line["kind"] == BATCH and line["input_rows"] > 0 and ended_us(line) >= from_us
