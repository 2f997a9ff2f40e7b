"""The Flink job starts with its variant, its settings, and the place of its files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.downloads.maven import artifacts, bundles
from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.scenario.cell import Cell
from oncebench.servers.sink_servers import needed_bundles
from peers.flink.engine import PROGRAM, job_settings
from peers.flink.settings import GUARANTEES, JOB, VARIANTS, described, jvm_options
from peers.java_job import UNUSED
from peers.variant import Variant
from pipeline.config import PipelineConfig

CELL = Cell("kafka", "exactly-once", "flink-rocksdb-200ms", partitions=3, transaction_timeout_ms=7000)


def attempt(folder: Path) -> PipelineConfig:
    return PipelineConfig(
        "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", CELL.variant, "run-1",
        folder / "checkpoint", folder,
    )  # fmt: skip


def test_a_variant_names_state_and_interval() -> None:
    assert VARIANTS.parse("flink-hashmap-1000ms") == Variant("hashmap", 1000)
    assert VARIANTS.parse("flink-rocksdb-50ms") == Variant("rocksdb", 50)


@pytest.mark.parametrize("text", ["two-phase", "flink-heap-50ms", "flink-rocksdb-9ms", "flink-rocksdb-1s", ""])
def test_another_variant_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="An example is flink-rocksdb-200ms") as refused:
        VARIANTS.parse(text)
    assert refused.value.exit_code == ExitCode.USAGE


def test_the_settings_follow_from_the_cell_and_are_all_in_the_report() -> None:
    settings = described(CELL, VARIANTS.parse(CELL.variant), 17)
    flink, producer = settings["flink"], settings["producer"]
    assert (flink["execution.checkpointing.interval"], flink["state.backend.type"]) == ("200 ms", "rocksdb")
    assert (flink["parallelism.default"], producer["transaction.timeout.ms"]) == ("3", "7000")
    assert settings["guarantee"] == "EXACTLY_ONCE"
    assert settings["versions"]["flink-runtime"] == "2.2.1"
    assert settings["consumer"]["isolation.level"] == "read_committed"
    assert json.loads(json.dumps(settings)) == settings


def test_the_default_transaction_time_out_is_below_the_brokers_limit() -> None:
    settings = described(replace(CELL, transaction_timeout_ms=Cell("", "", "").transaction_timeout_ms),
                         Variant("hashmap", 1000), 17)  # fmt: skip
    assert int(settings["producer"]["transaction.timeout.ms"]) < 15 * 60 * 1000


@pytest.mark.parametrize(("major", "warns"), [(17, False), (21, False), (25, True)])
def test_java_gets_only_options_that_it_knows(major: int, warns: bool) -> None:
    options = jvm_options(major)
    assert ("--sun-misc-unsafe-memory-access=allow" in options) == warns
    assert "--add-opens=java.base/java.lang=ALL-UNNAMED" in options


def test_an_attempt_adds_places_and_no_tuning(tmp_path: Path) -> None:
    described_settings = described(CELL, VARIANTS.parse(CELL.variant), 17)
    settings = job_settings(described_settings, attempt(tmp_path))
    added = settings["flink"].keys() - described_settings["flink"].keys()
    assert added == {"execution.checkpointing.dir", "io.tmp.dirs", "blob.storage.directory"}
    assert all(str(tmp_path) in settings["flink"][name] for name in added)
    assert settings["consumer"].keys() - described_settings["consumer"].keys() == {"group.id"}
    assert settings["producer"] == described_settings["producer"]
    # The suite finds leftovers by the prefix that its own sink uses.
    assert settings["transactionalIdPrefix"] == "run-1.txn."
    assert (tmp_path / "checkpoint" / "temporary").is_dir()


@pytest.mark.parametrize("name", ["a b", "josé", "a%20b", "a#b"])
def test_flink_writes_checkpoints_where_the_job_looks_for_them(name: str, tmp_path: Path) -> None:
    settings = job_settings(described(CELL, VARIANTS.parse(CELL.variant), 17), attempt(tmp_path / name))
    # Flink's Path decodes nothing: with %20 it would write into another folder, and a restart would find no checkpoint.
    assert settings["flink"]["execution.checkpointing.dir"] == f"file://{settings['checkpoints']}"
    assert settings["checkpoints"].startswith(str(tmp_path / name))


@pytest.mark.parametrize("name", ["a,b", "a:b", "a\\b"])
def test_a_path_that_flink_reads_as_another_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match="Flink can't use the path"):
        job_settings(described(CELL, VARIANTS.parse(CELL.variant), 17), attempt(tmp_path / name))


def test_every_guarantee_has_its_counterpart() -> None:
    assert GUARANTEES == {
        "at-most-once": "NONE", "at-least-once": "AT_LEAST_ONCE", "exactly-once": "EXACTLY_ONCE",
    }  # fmt: skip


def test_the_command_of_a_report_names_the_peer() -> None:
    cell = replace(CELL, partitions=2, transaction_timeout_ms=60_000, random_kills=1, outage_s=15.0, sessions=7)
    assert cell.reproduce(PROGRAM.words, PROGRAM.defaults) == (
        "python -m peers.flink --sink kafka --guarantee exactly-once --variant flink-rocksdb-200ms --random-kills 1 "
        "--outage 15 --sessions 7"
    )


def test_every_field_without_effect_is_a_field_of_a_cell() -> None:
    assert set(UNUSED) < CELL.as_json().keys()


def test_only_a_run_of_the_peer_fetches_its_jars() -> None:
    assert JOB.bundle in bundles() and JOB.bundle not in needed_bundles()


def test_the_jars_are_locked_once_each() -> None:
    names = [jar.name for jar in artifacts(JOB.bundle)]
    assert len(names) == len(set(names)) and "flink-connector-kafka" in names
