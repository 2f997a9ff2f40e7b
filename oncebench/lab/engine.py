"""Declares the engine of a run: how an attempt starts, and what the attempt leaves behind.

The suite's own pipeline runs on Spark (`SPARK`). A peer does the same work on another engine and declares itself in the
same way. The run, its faults and its audit are the same for both.

An engine that is started with `PipelineConfig` promises:

- It appends to `progress.jsonl` in the run folder: `started`, `running`, and then either `batch` lines (see
  `pipeline.progress`) or `position` lines. Both contain `end_offsets`: up to these the input is read, and the rows are
  committed.
- A start continues from what the previous attempt has committed.
- SIGTERM ends it with exit code 0. NO_RESTART_HELPS is the exit code of a failure that each restart would meet again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncebench.scenario.reproduce import RUN, Program
from pipeline.config import PipelineConfig, write_config
from pipeline.spark.sockets import sweep
from pipeline.spark.temporary import sweep_temporary


@dataclass(frozen=True)
class Engine:
    """One engine with its settings.

    Attributes:
        name: the engine's name in reports.
        start: writes the configuration of an attempt into its run folder, and returns the attempt's command.
        component: returns the component of a process, from the process's name and whether it is the attempt's first
            process.
        keeps_checkpoint_files: whether each checkpoint file exists long enough for the scan that counts its bytes
            (`oncebench.observe.bytes_written`). If not, the report has no bytes of checkpoints.
        sweep: removes what a killed attempt leaves outside its run folder.
        settings: every setting that a cell does not have, for the report.
        program: the command line that runs a cell with this engine.
    """

    name: str
    start: Callable[[PipelineConfig], list[str]]
    component: Callable[[str, bool], str]
    keeps_checkpoint_files: bool = True
    sweep: Callable[[Path], None] = lambda _folder: None
    settings: Mapping[str, Any] = field(default_factory=dict)
    program: Program = RUN

    def as_json(self) -> dict[str, Any]:
        """Returns the engine as a run folder and a report describe it."""
        return {
            "name": self.name,
            "settings": dict(self.settings),
            "unused": list(self.program.unused),
            "program": list(self.program.words),
            "defaults": dict(self.program.defaults),
        }


def _start_spark(config: PipelineConfig) -> list[str]:
    path = config.record / "pipeline.json"
    write_config(config, path)
    # faulthandler logs where a C library crashes, also during its import.
    return [sys.executable, "-X", "faulthandler", "-m", "pipeline", str(path)]


def _spark_component(name: str, leader: bool) -> str:
    """Returns the component of a process: JVM, driver or workers."""
    return "spark_jvm" if name == "java" else "python_driver" if leader else "python_workers"


def _sweep_spark(folder: Path) -> None:
    try:
        sweep(folder)
    finally:
        sweep_temporary(folder)


SPARK = Engine("spark", _start_spark, _spark_component, sweep=_sweep_spark)
