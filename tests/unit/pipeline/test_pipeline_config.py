"""A pipeline's configuration and query are checked before anything starts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from oncebench.delivery.contract import EXACTLY_ONCE, Support
from oncebench.delivery.errors import AnotherDriver, NoKafka, RefusedStart
from oncebench.delivery.journal import Identity, open_journal, put_exclusively
from oncebench.sinks.registry import SINKS
from pipeline.config import PipelineConfig, read_config, write_config
from pipeline.job import Job
from pipeline.spark.session import settings


def config(folder: Path, **changes: Any) -> PipelineConfig:
    kind = {"sink": "kafka", "guarantee": EXACTLY_ONCE, "variant": "two-phase"}
    base = {**kind, "sink_id": "mine", "bootstrap_servers": "localhost:1"}
    return PipelineConfig(
        input_topic="in", output={"output": "out"}, quarantine_topic="bad",
        checkpoint=folder / "checkpoint", record=folder / "record", **{**base, **changes},
    )  # fmt: skip


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "pipeline.json"
    write_config(config(folder), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


def test_a_written_configuration_is_read_back(tmp_path: Path) -> None:
    made = config(tmp_path, max_events_per_batch=7, jars=("a.jar",), kafka={"a": "b"}, spark={"c": "d"}, trace=True)
    write_config(made, tmp_path / "pipeline.json")
    assert read_config(tmp_path / "pipeline.json") == made


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("partitions", "2", "a whole number"),
        ("partitions", True, "a whole number"),
        ("partitions", 2.0, "a whole number"),
        ("sink_id", 7, "a text"),
        ("checkpoint", None, "a text"),
        ("trace", "yes", "true or false"),
        ("max_events_per_batch", "all", "a whole number or null"),
        ("jars", "a.jar", "a list of texts"),
        ("faults", [1], "a list of texts"),
        ("jvm_options", "-Xmx2g", "a list of texts"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_its_name(tmp_path: Path, field: str, value: Any, wanted: str) -> None:
    with pytest.raises(RefusedStart, match=f"{field} is .*, and must be {wanted}$"):
        read_config(written(tmp_path, **{field: value}))


def test_the_entry_that_is_no_text_is_named_and_no_secret_is_printed(tmp_path: Path) -> None:
    secret = {"sasl.jaas.config": 'password="S3CRET"'}
    for kafka, named in (({**secret, "linger.ms": 5}, "kafka: linger.ms must be a text"), ("S3CRET", "kafka must be")):
        with pytest.raises(RefusedStart, match=named) as refused:
            read_config(written(tmp_path, kafka=kafka))
        assert "S3CRET" not in str(refused.value)
    with pytest.raises(RefusedStart, match="kafka has a character") as refused:
        read_config(written(tmp_path, kafka={"sasl.jaas.config": "S3CRET\0"}))
    assert "S3CRET" not in str(refused.value)


@pytest.mark.parametrize("field", ["kafka", "kafka_conf", "spark", "output"])
def test_a_wrong_type_prints_nothing_that_may_be_secret(tmp_path: Path, field: str) -> None:
    with pytest.raises(RefusedStart, match=f"{field} must be ") as refused:
        read_config(written(tmp_path, **{field: ["S3CRET"]}))
    assert "S3CRET" not in str(refused.value)


def test_null_is_accepted_for_an_optional_field(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, max_events_per_batch=None)).max_events_per_batch is None


def test_an_unknown_sink_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "record").mkdir()
    with pytest.raises(RefusedStart, match=r"no sink 'kafak'\. Name one of: .*kafka.*postgres"):
        Job(config(tmp_path, sink="kafak")).run()


closed: list[str] = []


@pytest.fixture
def starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Starts a job whose sink calls this function at its start."""

    closed.clear()

    def run(at_start: Callable[[], None], trigger_ms: int = 0, **of_sink: Any) -> None:
        support = Support(EXACTLY_ONCE, "two-phase", "", default=True)
        sink = SimpleNamespace(
            start=lambda *_: at_start(),
            identity=dict,
            holder=lambda: None,
            marks=dict,
            incomparable=lambda: None,
            keeps_marks=False,
            restores_marks=False,
            newest_batch=lambda: -1,
            check_schema=lambda _: None,
            close=lambda: closed.append("sink"),
            **{"forgets_after_s": lambda: None, **of_sink},
        )
        kind = replace(SINKS["kafka"], supports=(support,), open=lambda _: sink)  # type: ignore[arg-type, return-value]
        monkeypatch.setattr("pipeline.sink.find_kind", lambda _: kind)
        topic = SimpleNamespace(
            identity=lambda: {"topic_id": "a"}, offsets=lambda: {"0": (0, 5)}, end_of_epoch=lambda *_: -1
        )
        monkeypatch.setattr("pipeline.starting.checks.InputTopic", lambda *_: topic)
        monkeypatch.setattr(Job, "_refuse_unfit_topics", lambda *_: None)
        (tmp_path / "record").mkdir()
        Job(config(tmp_path, trigger_ms=trigger_ms)).run()

    return run


def raising(error: Exception) -> Callable[[], None]:
    def at_start() -> None:
        raise error

    return at_start


@pytest.mark.parametrize("error", [KafkaException("timed out"), KafkaError("timed out")], ids=["confluent", "kafka"])
def test_a_kafka_that_does_not_answer_at_the_start_is_named(starting: Callable[..., None], error: Exception) -> None:
    with pytest.raises(NoKafka, match=r"Kafka at localhost:1 did not .*timed out.*start again"):
        starting(raising(error))


def test_a_start_that_a_newer_driver_overtook_reports_that_driver(
    starting: Callable[..., None], tmp_path: Path
) -> None:
    def overtaken() -> None:
        put_exclusively(config(tmp_path).checkpoint / "journal", "generation-00000009.json", {})
        raise RefusedStart("the cluster has seen generation 9")

    with pytest.raises(AnotherDriver, match="another driver was started"):
        starting(overtaken)


def test_a_refused_start_closes_the_sink(starting: Callable[..., None]) -> None:
    with pytest.raises(RefusedStart, match="no"):
        starting(raising(RefusedStart("no")))
    assert closed == ["sink"]


class Passed(Exception):
    """The checks of a start have passed."""


@pytest.mark.parametrize(
    ("decided", "hours", "outcome"),
    [(True, 169, RefusedStart), (True, 167, Passed), (False, 169, Passed)],
    ids=["older than its marker", "younger", "undecided, so not committed"],
)
def test_an_open_batch_older_than_its_marker_is_not_replayed(
    starting: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    decided: bool,
    hours: int,
    outcome: type[Exception],
) -> None:
    def passed(*_: Any) -> None:
        raise Passed("batch 3 was begun, and its journal and its marker are there")

    checkpoint = config(tmp_path).checkpoint
    journal = open_journal(checkpoint, Identity("mine", "kafka", EXACTLY_ONCE, "two-phase", 2))
    if decided:
        journal.decide(3, 0, {"partitions": []})
    (checkpoint / "offsets").mkdir()
    began = {"batchWatermarkMs": 0, "batchTimestampMs": int((time.time() - hours * 3600) * 1000)}
    (checkpoint / "offsets" / "2").write_text('v1\n{}\n{"in": {"0": 4}}')
    (checkpoint / "offsets" / "3").write_text(f'v1\n{json.dumps(began)}\n{{"in": {{"0": 5}}}}')
    monkeypatch.setattr("pipeline.job.Monitoring", passed)
    with pytest.raises(outcome, match="batch 3 was begun"):
        starting(lambda: None, forgets_after_s=lambda: 168 * 3600.0)


def test_a_trigger_longer_than_the_markers_last_is_refused_before_the_sink_fences(
    starting: Callable[..., None],
) -> None:
    fenced: list[bool] = []
    with pytest.raises(RefusedStart, match=r"trigger_ms is 61000, and the sink keeps its markers for 60 s only"):
        starting(lambda: fenced.append(True), trigger_ms=61_000, forgets_after_s=lambda: 60.0)
    assert not fenced


def test_a_start_with_an_unfit_topic_takes_no_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RefusedStart("the quarantine topic 'rejectedd' does not exist")

    monkeypatch.setattr("pipeline.job.refuse_unfit", refuse)
    (tmp_path / "record").mkdir()
    asked = config(tmp_path)
    running = open_journal(asked.checkpoint, Identity("mine", "kafka", EXACTLY_ONCE, "two-phase", 2))
    with pytest.raises(RefusedStart, match="does not exist"):
        Job(asked).run()
    running.check_still_ours()


def test_a_kafka_that_goes_away_during_the_last_check_is_named(starting: Callable[..., None], tmp_path: Path) -> None:
    checkpoint = config(tmp_path).checkpoint
    open_journal(checkpoint, Identity("mine", "kafka", EXACTLY_ONCE, "two-phase", 2)).decide(3, 0, {"partitions": []})
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "2").write_text('v1\n{}\n{"in": {"0": 4}}')
    (checkpoint / "offsets" / "3").write_text('v1\n{"batchTimestampMs": 1}\n{"in": {"0": 5}}')
    with pytest.raises(NoKafka, match="timed out"):
        starting(lambda: None, forgets_after_s=raising(KafkaException("timed out")))
    assert closed == ["sink"]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("on_lost", "rewirte", "must be one of: rewrite, drop"),
        ("checkpoint_writing", "native", "must be one of: tuned, as-shipped"),
        ("state_store", "x", "must be one of: changelog, snapshots"),
        ("partitions", 0, "must be 1 or more"),
        ("trigger_ms", -1, "must be 0 or more"),
        ("max_events_per_batch", 0, "must be 1 or more"),
        ("sink_id", "a b", "may have only letters, digits"),
        ("output", {"topic": "x"}, 'Write "output": {"output": NAME}'),
        ("output", {"output": ""}, "output is empty, and must name a target"),
        ("checkpoint", "", "checkpoint is empty, and must name a folder"),
        ("record", "", "record is empty, and must name a folder"),
        ("output", {"output": "a\0b"}, r"output has a character .*Remove the character"),
        ("output", {"output": "a", "dsn\0": "b"}, r"output has a character .*Remove the character"),
        ("checkpoint", "a\0b", r"checkpoint has a character .*Remove the character"),
        ("checkpoint", "/tmp/\ud800", r"checkpoint has a character .*Remove the character"),
        ("jars", ["a\0b"], r"jars has a character .*Remove the character"),
        ("kafka", {"isolation.level": "read_uncommitted"}, "isolation.level cannot be set here: a reader without it"),
        ("kafka", {"acks": "0"}, "acks cannot be set here: an acknowledgement must mean"),
        ("kafka", {"bootstrap.servers": "other:1"}, "bootstrap.servers has a field of its own"),
        ("kafka", {"security.protocol": "SASL_SSL"}, "sasl.mechanism GSSAPI, Kafka's default, is not supported"),
        ("kafka", {"sasl.username": "joe"}, "sasl.username has no effect with security.protocol PLAINTEXT"),
        ("kafka_conf", "/nowhere/client.properties", "/nowhere/client.properties cannot be read"),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, field: str, value: Any, told: str) -> None:
    with pytest.raises(RefusedStart, match=told):
        read_config(written(tmp_path, **{field: value}))


def test_a_kafka_setting_for_plaintext_is_accepted(tmp_path: Path) -> None:
    kafka = {"security.protocol": "PLAINTEXT", "client.id": "me"}
    found = read_config(written(tmp_path, kafka=kafka))
    assert found.kafka == kafka
    assert found.kafka_client == {"bootstrap.servers": found.bootstrap_servers, "client.id": "me"}


@pytest.mark.parametrize("name", ["checkpoint", "record"])
@pytest.mark.parametrize(
    "uri", ["file:///data/cp", "file:/data/cp", "hdfs://name:8020/cp", "gs://bucket/cp", "file:cp", "./a:/b"]
)
def test_a_folder_named_by_a_uri_is_refused(tmp_path: Path, name: str, uri: str) -> None:
    with pytest.raises(RefusedStart, match=f"{name} is '{uri}', a URI.*Give the path of a folder"):
        read_config(written(tmp_path, **{name: uri}))


@pytest.mark.parametrize("plain", ["/data/cp", "data/cp", "cp", "/data/a:b", "data/a:/b"])
def test_a_plain_path_is_accepted(tmp_path: Path, plain: str) -> None:
    assert read_config(written(tmp_path, checkpoint=plain)).checkpoint == Path(plain)


def test_a_file_without_an_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text("null")
    with pytest.raises(RefusedStart, match="must hold one JSON object"):
        read_config(tmp_path / "pipeline.json")


@pytest.mark.parametrize(
    "name",
    ["spark.master", "spark.task.maxFailures", "spark.speculation", "spark.stage.maxConsecutiveAttempts",
     "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled", "spark.python.daemon.module"],
)  # fmt: skip
def test_a_job_cannot_change_a_setting_that_the_guarantees_need(tmp_path: Path, name: str) -> None:
    (tmp_path / "record").mkdir()
    with pytest.raises(RefusedStart, match=f"the guarantees rest on {name}"):
        Job(config(tmp_path, spark={name: "4"})).run()
    assert name == "spark.master" or name in settings(config(tmp_path))


def test_a_jobs_spark_settings_override_the_sinks_and_ours(tmp_path: Path) -> None:
    of_sink = {"spark.ui.enabled": "by the sink", "spark.jars": "by the sink"}
    told = settings(config(tmp_path, spark={"spark.jars": "by the job"}), of_sink)
    assert (told["spark.ui.enabled"], told["spark.jars"]) == ("by the sink", "by the job")
    assert told["spark.task.maxFailures"] == "1"
