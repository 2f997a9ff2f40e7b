"""What a job states about its sink and its session, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.jobs import DeltaSink, FilesSink, KafkaSink, PostgresSink, SqliteSink, deliver
from oncebench.jobs.session import AT_START, missing_of_sink, refuse_unknown_spark, shown_secrets, wrong_at_start
from oncebench.jobs.sinks import JobSink
from oncebench.sinks.registry import SINKS
from tests import ROOT

DESCRIPTIONS: list[JobSink] = [
    KafkaSink("out", bootstrap_servers="broker1:9092", sink_id="a"),
    PostgresSink("out", sink_id="a"),
    FilesSink("out", sink_id="a"),
    FilesSink("out", sink_id="a", form="jsonl"),
    DeltaSink("out", sink_id="a"),
    SqliteSink("out", sink_id="a"),
]
KAFKA = DESCRIPTIONS[0]


@pytest.mark.parametrize("sink", DESCRIPTIONS, ids=lambda sink: sink.kind)
def test_a_description_names_a_kind_of_sink(sink: JobSink) -> None:
    assert sink.kind in SINKS
    assert sink.output == "out"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2, 1]"])
def test_a_local_master_needs_no_limit_of_tries(master: str) -> None:
    others = {name: value for name, value in AT_START.items() if name != "spark.task.maxFailures"}
    assert wrong_at_start(master, others) == []


def test_a_local_master_that_tries_again_is_refused() -> None:
    assert wrong_at_start("local[2, 4]", AT_START) == ['.master("local[2]")']


def test_a_cluster_with_sparks_defaults_gets_every_line() -> None:
    assert wrong_at_start("spark://host:7077", {}) == [
        '.config("spark.task.maxFailures", "1")',
        '.config("spark.stage.maxConsecutiveAttempts", "1")',
        '.config("spark.stage.ignoreDecommissionFetchFailure", "false")',
    ]


@pytest.mark.parametrize(
    "name",
    [
        "spark.task.maxFailures",
        "spark.stage.maxConsecutiveAttempts",
        "spark.stage.ignoreDecommissionFetchFailure",
        "spark.speculation",
    ],
)
def test_each_setting_of_a_cluster_is_checked(name: str) -> None:
    (line,) = wrong_at_start("yarn", {**AT_START, name: "7"})
    assert line == f'.config("{name}", "{AT_START[name]}")'


def test_a_session_without_deltas_extension_gets_its_lines() -> None:
    of_sink = SINKS["delta"].spark
    lines = missing_of_sink(of_sink, {})
    assert [line.split('"')[1] for line in lines] == ["spark.sql.extensions", "spark.sql.catalog.spark_catalog"]
    both = {**of_sink, "spark.sql.extensions": f"mine.Extension,{of_sink['spark.sql.extensions']}"}
    assert missing_of_sink(of_sink, both) == []


DSN = "spark.executorEnv.ONCEBENCH_POSTGRES"
WITH_PASSWORD = {DSN: "postgresql://me:hunter2@db/orders"}


def test_a_password_that_spark_shows_is_found() -> None:
    variables = SINKS["postgres"].environment
    assert shown_secrets(variables, WITH_PASSWORD) == [DSN]
    assert shown_secrets(variables, {**WITH_PASSWORD, "spark.redaction.regex": "password"}) == [DSN]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {DSN: "postgresql://me@db:5432/orders", "spark.executorEnv.PGPASSWORD": "hunter2"},
        {DSN: "postgresql://me@[::1]:5432/orders"},
        {DSN: "host=db user=me password=hunter2"},
        {DSN: "postgresql://db/orders?user=me&password=hunter2"},
        {**WITH_PASSWORD, "spark.redaction.regex": "(?i)password|ONCEBENCH_"},
        {**WITH_PASSWORD, "spark.redaction.regex": r"^spark\.executorEnv\.ONCEBENCH_POSTGRES$"},
        {**WITH_PASSWORD, "spark.redaction.regex": "^postgresql://"},
        {**WITH_PASSWORD, "spark.redaction.regex": "secret|(?i)executorEnv"},  # Python does not read this one
    ],
)
def test_a_dsn_that_spark_may_show_passes(settings: dict[str, str]) -> None:
    assert shown_secrets(SINKS["postgres"].environment, settings) == []


@pytest.mark.parametrize("version", ["4.2.0", "4.2.0-amzn-1"])
def test_a_spark_that_was_tested_passes(version: str) -> None:
    refuse_unknown_spark(version)


UNTRIED = "No test has killed a job under this version, and it may break a guarantee silently"


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("3.5.9", UNTRIED),
        ("4.0.0", "most contract tests have not been run under it"),
        ("4.0.4", "most contract tests have not been run under it"),
        ("4.1.1", "Spark's Kafka source ended the query after each replay"),
        ("4.3.0", UNTRIED),
        ("4.20.0", UNTRIED),
        ("5.0.0-preview1", UNTRIED),
    ],
)
def test_a_spark_that_is_not_accepted_is_refused_with_what_was_found(version: str, found: str) -> None:
    with pytest.raises(RefusedStart) as refused:
        refuse_unknown_spark(version)
    assert f"runs Spark {version}, and deliver() accepts 4.2 only. " in str(refused.value)
    assert found in str(refused.value)


def rows(**more: Any) -> Any:
    return SimpleNamespace(isStreaming=True, **more)


def test_rows_of_spark_connect_are_refused_by_name(tmp_path: Path) -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(RefusedStart, match=r"Spark Connect.*without \.remote"):
        deliver(frame, KAFKA, guarantee="exactly-once", checkpoint=tmp_path / "checkpoint")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("sink", "changes", "said"),
    [
        (KAFKA, {"guarantee": "twice"}, "does not support twice"),
        (KAFKA, {"guarantee": "at-least-once", "variant": "native"}, "native is Spark's own sink"),
        (KAFKA, {"on_lost": "DROP"}, "on_lost is 'DROP', and must be one of: rewrite, drop"),
        (KAFKA, {"checkpoint": "hdfs://name/checkpoint"}, "a URI"),
        (KafkaSink("out", bootstrap_servers="b:1", sink_id="a b"), {}, "sink_id is 'a b'"),
        (FilesSink("out", sink_id="a", form="orc"), {}, "there is no sink 'files-orc'. Name one of: .*files-parquet"),
    ],
)
def test_a_wrong_argument_is_refused(tmp_path: Path, sink: JobSink, changes: dict[str, Any], said: str) -> None:
    arguments = {"guarantee": "exactly-once", "checkpoint": tmp_path / "checkpoint", **changes}
    with pytest.raises(RefusedStart, match=said):
        deliver(rows(), sink, **arguments)
    assert not list(tmp_path.iterdir())


def test_rows_that_are_no_stream_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedStart, match="not a stream"):
        deliver(SimpleNamespace(isStreaming=False), KAFKA, guarantee="exactly-once", checkpoint=tmp_path)  # type: ignore[arg-type]


def test_the_page_prints_the_example() -> None:
    code = (ROOT / "examples" / "orders_to_kafka.py").read_text().split('"""\n\n', 1)[1]
    assert f"```python\n{code}```" in (ROOT / "docs" / "your_own_job.md").read_text()
