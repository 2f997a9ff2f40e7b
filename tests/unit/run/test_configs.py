"""What a run tells its pipeline: Kafka by way of the run's link, and no time-out for sessions that are to stay open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oncebench.run.configs import load_config, pipeline_config
from oncebench.run.topics import Topics
from oncebench.scenario.cell import Cell
from pipeline.config import PipelineConfig

LAB: Any = SimpleNamespace(spark=lambda _kinds: {"jars": (), "driver_jars": (), "jvm_options": ()})
TOPICS = Topics("in", "bad", {"output": "out"})
CELL = Cell("kafka", "exactly-once", "two-phase", faults=("after-prepare:kill",))


def told(cell: Cell) -> PipelineConfig:
    return pipeline_config(cell, LAB, "proxy:1", TOPICS, "run-1", Path("folder"))


def test_sessions_that_are_to_stay_open_outlive_the_run_and_others_end_as_in_any_job() -> None:
    assert told(replace(CELL, open_sessions=5)).session_timeout_ms >= 24 * 3_600_000
    assert told(CELL).session_timeout_ms == PipelineConfig.session_timeout_ms


def test_the_pipeline_is_told_its_own_way_to_kafka_and_the_generator_the_brokers() -> None:
    assert (told(CELL).bootstrap_servers, told(CELL).sink_id) == ("proxy:1", "run-1")
    assert [str(fault) for fault in told(CELL).faults] == ["after-prepare:kill"]
    assert load_config(CELL, "broker:1", TOPICS, Path("folder"))["bootstrap_servers"] == "broker:1"


def test_a_run_is_judged_by_its_progress_so_every_line_of_it_must_be_there() -> None:
    assert told(CELL).progress_whole
    assert told(replace(CELL, faults=())).progress_whole
