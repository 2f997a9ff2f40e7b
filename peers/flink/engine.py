"""Starts Flink as the engine of a run: a JVM that continues from the newest checkpoint."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from oncebench.downloads.java import Java
from oncebench.downloads.maven import jars
from oncebench.lab.engine import Engine
from oncebench.scenario.cell import Cell
from oncebench.sinks.kafka.names import transactional_ids
from peers.flink.build import BUNDLE, compiled
from peers.flink.settings import described
from peers.flink.variant import FlinkVariant
from pipeline.config import PipelineConfig

PROGRAM = ("python", "-m", "peers.flink")
# Settings of Spark's pipeline; Flink's own are in `Engine.settings`.
UNUSED = ("trigger_ms", "max_events_per_batch", "on_lost", "checkpoint_writing", "state_store", "master", "spark_conf")
_LOG4J = Path(__file__).with_name("log4j2.properties")
_MAIN = "oncebench.flink.Job"


def flink(cell: Cell, java: Java) -> Engine:
    """Returns the engine with the settings of a cell; compiles the Java job if necessary."""
    class_path = jars(BUNDLE)
    classes = compiled(java, class_path)
    settings = described(cell, FlinkVariant.parse(cell.variant), java.major)
    command = [
        str(java.executable),
        *settings["jvm"],
        f"-Dlog4j2.configurationFile={_LOG4J}",
        "-cp",
        ":".join(map(str, (classes, *class_path))),
        _MAIN,
    ]
    return Engine(
        name="flink",
        start=partial(_start, command, settings),
        component=lambda _name, _leader: "flink_jvm",
        keeps_checkpoint_files=False,  # Flink deletes a checkpoint as soon as the next one has completed
        settings=settings,
        unused=UNUSED,
        program=PROGRAM,
    )


def _start(command: list[str], settings: dict[str, Any], config: PipelineConfig) -> list[str]:
    path = config.record / "flink.json"
    path.write_text(json.dumps(job_settings(settings, config), indent=1))
    return [*command, str(path)]


def job_settings(settings: dict[str, Any], config: PipelineConfig) -> dict[str, Any]:
    """Returns the settings of an attempt, as `Settings.java` reads them."""
    assert isinstance(config.checkpoint, Path), "the suite has named a folder"
    checkpoints, temporary = config.checkpoint / "completed", config.checkpoint / "temporary"
    places = {
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "io.tmp.dirs": str(temporary),
        "blob.storage.directory": str(temporary),
    }
    temporary.mkdir(parents=True, exist_ok=True)
    return {
        "bootstrapServers": config.bootstrap_servers,
        "inputTopic": config.input_topic,
        "outputTopic": config.output["output"],
        "quarantineTopic": config.quarantine_topic,
        "guarantee": settings["guarantee"],
        "transactionalIdPrefix": transactional_ids(config.sink_id),
        "transactionNaming": settings["transaction_naming"],
        "checkpoints": str(checkpoints),
        "progress": str(config.record / "progress.jsonl"),
        "sessionTimeoutMs": config.session_timeout_ms,
        "watermarkDelayMs": settings["watermark_delay_ms"],
        "flink": {**settings["flink"], **places},
        "consumer": {**settings["consumer"], "group.id": config.monitoring_group},
        "producer": settings["producer"],
    }
