"""Computes the table of a profile: the CPU time of a batch by part.

Promise: the sum of a process's parts is the CPU time that the run's resource samples measured for it, from the end of
the warm-up on. The stacks only split that sum. So a profiler that misses samples changes the split and not the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oncebench.observe.resources import SUITE
from oncebench.profiling.parts import (
    DRIVER,
    JVM_PARTS,
    OTHER_THREADS,
    OTHER_WORKERS,
    WORKER_PARTS,
    part_of_thread,
    part_of_worker,
    samples_by_part,
)
from oncebench.profiling.stacks import Stack
from oncebench.profiling.times import BatchTimes

_JVM, _WORKERS = "spark_jvm", "python_workers"
_NAMES = {"python_driver": DRIVER, "broker": "Kafka broker", "observer": "observer", "generator": "generator",
          SUITE: "oncebench itself"}  # fmt: skip

SHORTEST_MS = 0.05  # shorter steps of a sink would be printed as 0.0


def cpu_by_part(
    cpu_s: Mapping[str, float], batches: int, jvm: Iterable[Stack], workers: Iterable[Stack]
) -> dict[str, float]:
    """Returns CPU milliseconds per batch of each part that used any.

    Args:
        cpu_s: CPU seconds of each component (`oncebench.observe.resources`).
        batches: at least 1.
        jvm: samples of the JVM's threads.
        workers: samples of the Python workers.
    """
    per_batch = {name: used * 1000 / batches for name, used in cpu_s.items()}
    samples = samples_by_part(jvm, part_of_thread) or {OTHER_THREADS: 1}
    parts = _split(per_batch.pop(_JVM, 0.0), samples, JVM_PARTS)
    samples = samples_by_part(workers, part_of_worker) or {OTHER_WORKERS: 1}
    parts |= _split(per_batch.pop(_WORKERS, 0.0), samples, WORKER_PARTS)
    first = [name for name in _NAMES if name in per_batch]
    rest = sorted(per_batch.keys() - _NAMES.keys())  # servers of the sink
    parts |= {_NAMES.get(name, name): per_batch[name] for name in (*first, *rest)}
    return {part: ms for part, ms in parts.items() if ms > 0}


def _split(ms: float, samples: Mapping[str, int], parts: Iterable[str]) -> dict[str, float]:
    total = sum(samples.values())
    return {part: ms * samples.get(part, 0) / total for part in parts}


def table(parts: Mapping[str, float]) -> str:
    """Returns the Markdown table of `cpu_by_part`, the largest part first."""
    total = sum(parts.values())
    largest_first = sorted(parts.items(), key=lambda item: item[1], reverse=True)
    rows = [f"| {part} | {ms:.1f} | {ms / total:.0%} |" for part, ms in largest_first]
    head = ("| part | CPU ms per batch | share |", "|---|---:|---:|")
    return "\n".join((*head, *rows, f"| all | {total:.1f} | 100% |"))


def batch_line(times: BatchTimes) -> str:
    """Returns the median time of a batch and its steps, in one or two lines."""
    if times.total is None:
        return "No batch began after the warm-up."
    spark = ", ".join(f"{step} {ms:.0f}" for step, ms in times.steps.items())
    sink = ", ".join(f"{step} {ms:.1f}" for step, ms in times.sink.items() if ms >= SHORTEST_MS)
    own = f"\nThe sink's steps in the run: {sink}." if sink else ""
    return f"A batch takes {times.total:.0f} ms (median): {spark}.{own}"
