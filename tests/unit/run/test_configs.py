"""The configurations of a run: Kafka's address, session timeout, faults and progress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oncebench.kafka_access.access import KafkaAccess
from oncebench.run.configs import load_configs, pipeline_config
from oncebench.run.topics import Topics
from oncebench.scenario.cell import Cell
from pipeline.config import PipelineConfig
from pipeline.spark.session import settings

LAB: Any = SimpleNamespace(cluster=None, spark=lambda _kinds, **_: {"jars": (), "driver_jars": (), "jvm_options": ()})
TOPICS = Topics("in", "bad", {"output": "out"})
CELL = Cell("kafka", "exactly-once", "two-phase", faults=("after-prepare:kill",))


def config(cell: Cell) -> PipelineConfig:
    return pipeline_config(cell, LAB, KafkaAccess("proxy:1"), TOPICS, "run-1", Path("folder"))


def test_only_open_sessions_get_a_timeout_longer_than_a_run() -> None:
    assert config(replace(CELL, open_sessions=5)).session_timeout_ms >= 24 * 3_600_000
    assert config(CELL).session_timeout_ms == PipelineConfig.session_timeout_ms


def test_the_pipeline_uses_the_proxy_and_the_generator_the_broker() -> None:
    assert (config(CELL).bootstrap_servers, config(CELL).sink_id) == ("proxy:1", "run-1")
    assert [str(fault) for fault in config(CELL).faults] == ["after-prepare:kill"]
    (load,) = load_configs(CELL, KafkaAccess("broker:1"), TOPICS, Path("folder"))
    assert load["bootstrap_servers"] == "broker:1"


def test_a_run_has_no_batches_without_data_and_a_job_of_ones_own_has() -> None:
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    assert settings(config(CELL))[name] == "false"
    assert name not in settings(replace(config(CELL), spark={}))


def test_the_pipeline_must_write_every_progress_line() -> None:
    assert config(CELL).progress_whole
    assert config(replace(CELL, faults=())).progress_whole
