"""Starts Kafka Streams as the engine of a run.

The engine is a JVM that continues from the offsets of its consumer group.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from oncebench.downloads.java import Java
from oncebench.lab.engine import Engine
from oncebench.scenario.cell import Cell
from oncebench.scenario.reproduce import Program
from oncebench.sinks.kafka.names import transactional_ids
from peers.java_job import UNUSED, shared_settings, start
from peers.kafka_streams.settings import JOB, TRANSACTION_TIMEOUT_MS, VARIANTS, described
from pipeline.config import PipelineConfig

PROGRAM = Program(("python", "-m", "peers.kafka_streams"), UNUSED, {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS})


def kafka_streams(cell: Cell, java: Java) -> Engine:
    """Returns the engine with the settings of a cell; compiles the Java job if necessary."""
    settings = described(cell, VARIANTS.parse(cell.variant))
    command = JOB.command(java, settings["jvm"])
    return Engine(
        name="kafka-streams",
        start=partial(start, command, "kafka-streams", partial(job_settings, settings)),
        component=lambda _name, _leader: "streams_jvm",
        keeps_checkpoint_files=False,  # its checkpoint is the changelog topic; RocksDB's files come and go
        settings=settings,
        program=PROGRAM,
    )


def job_settings(settings: dict[str, Any], config: PipelineConfig) -> dict[str, Any]:
    """Returns the settings of an attempt, as `Settings.java` reads them."""
    assert isinstance(config.checkpoint, Path), "the suite has named a folder"
    places = {
        "bootstrap.servers": config.bootstrap_servers,
        # Also the consumer group, and the beginning of each transactional id and of the changelog topic's name.
        "application.id": f"{transactional_ids(config.sink_id)}streams",
        "state.dir": str(config.checkpoint),
    }
    return {
        **shared_settings(config),
        "watermarkDelayMs": settings["watermark_delay_ms"],
        "state": settings["state"],
        "expiryIntervalMs": max(1, config.session_timeout_ms // settings["expiry_looks_per_timeout"]),
        "streams": {**settings["streams"], **places},
    }
