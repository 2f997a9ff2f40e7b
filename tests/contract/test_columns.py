"""Columns whose names have a dot or a backtick reach every kind of writer.

Their hash is that of the replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from oncebench.delivery import quarantine
from oncebench.delivery.batch import Batch, deliverable
from oncebench.delivery.contract import EXACTLY_ONCE, RECORDS, WHOLE_BATCH, SinkSettings
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.journal import Identity, open_journal
from oncebench.delivery.protocols import choose, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.lab.lab import Lab
from oncebench.sinks.registry import SINKS
from pipeline import rows as job_rows
from tests.spark_sessions import sinkless, spark_session

pytestmark = [pytest.mark.contract, pytest.mark.spark]

NAMES = ("id", "c.d", "a`b", "`e.f`")
VALUES = [("1", "x", "y", None), ("2", None, "", "z")]


@pytest.fixture(scope="module")
def spark(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    kind = SINKS["delta"]
    with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"), [kind]), kind.spark) as started:
        yield started


def made(spark: SparkSession) -> DataFrame:
    rows = spark.createDataFrame(VALUES, "a string, b string, c string, d string").toDF(*NAMES)
    return rows.repartition(2, "id").selectExpr("*", f"cast(null as {quarantine.TYPE}) as {quarantine.COLUMN}")


@pytest.mark.parametrize(
    ("sink", "format"),
    [
        ("files-jsonl", "json"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("files-parquet", "parquet"), ("delta", "delta"))),
    ],
)
def test_any_name_is_carried_and_a_replay_is_compared(
    spark: SparkSession, tmp_path: Path, sink: str, format: str
) -> None:
    kind, output, checkpoint = SINKS[sink], tmp_path / "output", tmp_path / "checkpoint"
    support = choose(kind, EXACTLY_ONCE, None)
    for _ in range(2):  # the second driver replays the batch
        journal = open_journal(checkpoint, Identity("mine", sink, EXACTLY_ONCE, support.variant, 2))
        opened = kind.open(SinkSettings({"output": str(output)}, "mine", 2, checkpoint, variant=support.variant))
        opened.check_schema(made(spark).schema)
        opened.start(support, journal.generation, [])
        rows = deliverable(made(spark), opened)
        batch = Batch(rows, 0, 2, Failpoints((), tmp_path / "hits", None), Quarantine("q", "in", {}))
        protocol_of(kind, support)(batch, opened, journal, "rewrite")
        assert sum(result.rows for result in batch.results) == len(VALUES)
    assert batch.drained
    assert sink != "delta" or opened.marks()[WHOLE_BATCH].digest is not None
    found = spark.read.format(format).load(str(output)).toDF(*sorted(NAMES) if format == "json" else NAMES)
    assert sorted(map(tuple, found.select(*map(_quoted, NAMES)).collect())) == VALUES


def test_a_record_takes_its_key_from_a_column_of_any_name(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_rows, "KEY", "c.d")
    monkeypatch.setattr(job_rows, "ROW", NAMES)
    records = job_rows.rows_for(RECORDS, made(spark)).drop(quarantine.COLUMN).collect()
    assert sorted(map(tuple, records), key=str) == [
        ("x", '{"id":"1","c.d":"x","a`b":"y","`e.f`":null}'),
        (None, '{"id":"2","c.d":null,"a`b":"","`e.f`":"z"}'),
    ]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
