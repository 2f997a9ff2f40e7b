"""Presents a profiled run: a text for stdout, and flame graphs in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncebench.downloads.async_profiler import AsyncProfiler
from oncebench.downloads.java import Java
from oncebench.errors import UserError
from oncebench.profiling.flame_graphs import below_part, write_flame_graph
from oncebench.profiling.parts import DRIVER, part_of_thread, part_of_worker
from oncebench.profiling.stacks import Samples
from oncebench.profiling.table import batch_line, cpu_by_part, table
from oncebench.profiling.times import batch_times
from oncebench.record import FACTS
from oncebench.record.json_lines import read_lines
from oncebench.report.measures.checkpoint import Progress


def describe(folder: Path, samples: Samples) -> str:
    """Returns the text of a profile.

    Args:
        folder: the run folder of the finished run.
        samples: the stacks that the profilers sampled.

    Raises:
        UserError: the run measured no batch.
    """
    facts: Mapping[str, Any] = json.loads((folder / FACTS).read_text("utf-8"))
    lines = read_lines(folder / "progress.jsonl").items
    times = batch_times(Progress(lines, facts["measured_from_us"], None))
    if not times.batches:
        raise UserError(f"the run has no batch after its warm-up. Give a longer --duration; see {folder}/logs")
    cpu_s = {name: use["cpu_s"] for name, use in facts["uses"].items()}
    parts = cpu_by_part(cpu_s, times.batches, samples.jvm, samples.workers)
    return f"{batch_line(times)}\n\n{table(parts)}\n\n{times.batches} batches. Samples: {samples}."


def write_pages(folder: Path, samples: Samples, profiler: AsyncProfiler, java: Java) -> None:
    """Writes the flame graphs `jvm.html` and `python.html`."""
    jvm = below_part(samples.jvm, part_of_thread)
    driver = below_part(samples.driver, lambda _stack: DRIVER)
    python = [*driver, *below_part(samples.workers, part_of_worker)]
    write_flame_graph(folder / "jvm.html", "JVM of the pipeline", jvm, profiler, java)
    write_flame_graph(folder / "python.html", "Python of the pipeline", python, profiler, java)
