"""The Kafka Streams job starts with its variant, its settings, and the place of its state."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.downloads.maven import artifacts, bundles
from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import Cell
from oncebench.servers.sink_servers import needed_bundles
from peers.kafka_streams.engine import PROGRAM, job_settings
from peers.kafka_streams.settings import GUARANTEES, JOB, TRANSACTION_TIMEOUT_MS, VARIANTS, check, described
from peers.variant import Variant
from pipeline.config import PipelineConfig

CELL = Cell("kafka", "exactly-once", "streams-memory-200ms", partitions=3, transaction_timeout_ms=7000)


def test_a_variant_names_state_and_interval() -> None:
    assert VARIANTS.parse("streams-rocksdb-1000ms") == Variant("rocksdb", 1000)
    assert VARIANTS.parse("streams-memory-100ms") == Variant("memory", 100)


@pytest.mark.parametrize("text", ["flink-rocksdb-200ms", "streams-heap-50ms", "streams-rocksdb-9ms", "streams-memory"])
def test_another_variant_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"between two commits.* An example is streams-rocksdb-100ms") as refused:
        VARIANTS.parse(text)
    assert refused.value.exit_code == ExitCode.USAGE


def test_the_settings_follow_from_the_cell_and_are_all_in_the_report() -> None:
    settings = described(CELL, VARIANTS.parse(CELL.variant))
    streams = settings["streams"]
    assert (settings["state"], streams["commit.interval.ms"]) == ("memory", "200")
    assert (streams["num.stream.threads"], streams["producer.transaction.timeout.ms"]) == ("3", "7000")
    assert streams["processing.guarantee"] == "exactly_once_v2"
    assert settings["versions"].keys() == {"kafka-streams", "kafka-clients", "rocksdbjni"}
    assert json.loads(json.dumps(settings)) == settings


def test_at_least_once_reads_committed_events_too() -> None:
    streams = described(replace(CELL, guarantee="at-least-once"), Variant("rocksdb", 1000))["streams"]
    assert streams["processing.guarantee"] == "at_least_once"
    assert streams["main.consumer.isolation.level"] == "read_committed"


def test_every_guarantee_of_streams_has_its_counterpart() -> None:
    assert GUARANTEES == {"at-least-once": "at_least_once", "exactly-once": "exactly_once_v2"}


def test_an_attempt_adds_places_and_no_tuning(tmp_path: Path) -> None:
    described_settings = described(CELL, VARIANTS.parse(CELL.variant))
    config = PipelineConfig(
        "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", CELL.variant, "run-1",
        tmp_path / "checkpoint", tmp_path,
    )  # fmt: skip
    settings = job_settings(described_settings, config)
    added = settings["streams"].keys() - described_settings["streams"].keys()
    assert added == {"bootstrap.servers", "application.id", "state.dir"}
    # The suite finds leftovers by the prefix that its own sink uses. Transactional ids begin with the application id.
    assert settings["streams"]["application.id"].startswith("run-1.txn.")
    assert settings["streams"]["state.dir"] == str(tmp_path / "checkpoint")
    assert settings["expiryIntervalMs"] == config.session_timeout_ms // 10


def test_a_transaction_that_times_out_before_its_commit_is_refused() -> None:
    slow = replace(CELL, variant="streams-memory-7001ms")
    with pytest.raises(UserError, match="--transaction-timeout 7000 is shorter than the 7001 ms") as refused:
        check(slow)
    assert refused.value.exit_code == ExitCode.USAGE
    check(replace(slow, guarantee="at-least-once"))
    check(CELL)


@pytest.mark.parametrize("timeout_ms", [TRANSACTION_TIMEOUT_MS, Cell.transaction_timeout_ms, 20_000])
def test_the_command_of_a_report_has_a_time_out_that_is_not_the_programs(timeout_ms: int) -> None:
    text = replace(CELL, transaction_timeout_ms=timeout_ms).reproduce(PROGRAM.words, PROGRAM.defaults)
    assert text.startswith(" ".join(PROGRAM.words))
    assert text.count(f"--transaction-timeout {timeout_ms}") == int(timeout_ms != TRANSACTION_TIMEOUT_MS)


def test_only_a_run_of_the_peer_fetches_its_jars() -> None:
    assert JOB.bundle in bundles() and JOB.bundle not in needed_bundles()


def test_the_jars_are_locked_once_each_in_the_brokers_version() -> None:
    versions = {jar.name: jar.version for jar in artifacts(JOB.bundle)}
    assert len(versions) == len(artifacts(JOB.bundle))
    broker = {jar.name: jar.version for jar in artifacts("kafka-broker")}
    assert versions["kafka-streams"] == versions["kafka-clients"] == broker["kafka-clients"]
