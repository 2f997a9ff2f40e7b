"""Starts Flink as the engine of a run: a JVM that continues from the newest checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from oncebench.disk_errors import refuse_marks
from oncebench.downloads.java import Java
from oncebench.lab.engine import Engine
from oncebench.scenario.cell import Cell
from oncebench.scenario.reproduce import Program
from oncebench.sinks.kafka.names import transactional_ids
from peers.flink.settings import JOB, VARIANTS, described
from peers.java_job import UNUSED, shared_settings, start
from pipeline.config import PipelineConfig

PROGRAM = Program(("python", "-m", "peers.flink"), UNUSED)


def flink(cell: Cell, java: Java) -> Engine:
    """Returns the engine with the settings of a cell; compiles the Java job if necessary."""
    settings = described(cell, VARIANTS.parse(cell.variant), java.major)
    command = JOB.command(java, settings["jvm"])
    return Engine(
        name="flink",
        start=partial(start, command, "flink", partial(job_settings, settings)),
        component=lambda _name, _leader: "flink_jvm",
        keeps_checkpoint_files=False,  # Flink deletes a checkpoint as soon as the next one has completed
        settings=settings,
        program=PROGRAM,
    )


def job_settings(settings: dict[str, Any], config: PipelineConfig) -> dict[str, Any]:
    """Returns the settings of an attempt, as `Settings.java` reads them."""
    assert isinstance(config.checkpoint, Path), "the suite has named a folder"
    refuse_marks(config.checkpoint, ",:\\", "Flink")  # it separates folders, and reads a backslash as a slash
    checkpoints, temporary = config.checkpoint / "completed", config.checkpoint / "temporary"
    places = {
        "execution.checkpointing.dir": f"file://{checkpoints}",  # Flink decodes no %20
        "io.tmp.dirs": str(temporary),
        "blob.storage.directory": str(temporary),
    }
    temporary.mkdir(parents=True, exist_ok=True)
    return {
        **shared_settings(config),
        "guarantee": settings["guarantee"],
        "transactionalIdPrefix": transactional_ids(config.sink_id),
        "transactionNaming": settings["transaction_naming"],
        "checkpoints": str(checkpoints),
        "watermarkDelayMs": settings["watermark_delay_ms"],
        "flink": {**settings["flink"], **places},
        "consumer": {**settings["consumer"], "group.id": config.monitoring_group},
        "producer": settings["producer"],
    }
