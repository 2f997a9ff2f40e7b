"""The configurations of a run: Kafka's address, session timeout, faults and progress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oncebench.kafka_access.access import KafkaAccess
from oncebench.run.configs import load_configs, observer_configs, pipeline_config
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


def test_one_generator_and_observer_have_the_files_they_always_had() -> None:
    (load,) = load_configs(CELL, KafkaAccess("b:1"), TOPICS, Path("folder"))
    (observer,) = observer_configs(CELL, TOPICS, Path("folder"))
    assert (load["ledger_dir"], load["status_path"]) == ("folder/ledger", "folder/load.jsonl")
    assert not {"generator", "generators", "meeting_dir"} & load.keys()
    assert observer == {
        "sink": "kafka", "target": {"output": "out"}, "observed_path": "folder/observed.arrow",
        "status_path": "folder/observer.jsonl",
    }  # fmt: skip


def test_each_of_several_generators_and_observers_has_its_share_and_its_files() -> None:
    cell = replace(CELL, generators=3, observers=2)
    loads = load_configs(cell, KafkaAccess("b:1"), TOPICS, Path("folder"))
    assert [(each["generator"], each["generators"], each["ledger_dir"]) for each in loads] == [
        (1, 3, "folder/ledger-1"), (2, 3, "folder/ledger-2"), (3, 3, "folder/ledger-3"),
    ]  # fmt: skip
    assert {each["meeting_dir"] for each in loads} == {"folder/meeting"}
    assert len({each["status_path"] for each in loads}) == 3
    observers = observer_configs(cell, TOPICS, Path("folder"))
    assert [(each["part"], each["parts"], each["observed_path"]) for each in observers] == [
        (1, 2, "folder/observed-1.arrow"), (2, 2, "folder/observed-2.arrow"),
    ]  # fmt: skip
