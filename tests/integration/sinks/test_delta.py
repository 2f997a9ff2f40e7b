"""Delta: a lost checkpoint and a reused id are refused.

A replay that makes other rows, of whatever type, is refused too.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncebench.delivery import digest
from oncebench.delivery.batch import deliverable
from oncebench.delivery.contract import EXACTLY_ONCE, WHOLE_BATCH, Mark
from oncebench.delivery.errors import NondeterministicReplay
from oncebench.errors import UserError
from oncebench.lab.lab import Lab
from oncebench.sinks.registry import SINKS, suite_sinks
from pipeline.config import PipelineConfig
from pipeline.rows import KEY
from pipeline.sink import open_sink
from tests.contract.attempts import Output, make_output
from tests.every_type import FLAT, NESTED, frame, give_the_job, schema
from tests.pipelines import Fixture, every_row, position, session
from tests.reading import read_all
from tests.spark_sessions import sinkless, spark_session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def config(fixture: Fixture, *faults: str, **changes: Any) -> PipelineConfig:
    return fixture.config(
        "exactly-once",
        "idempotent",
        *faults,
        sink="delta",
        output={"output": str(fixture.folder / "table")},
        **changes,
    )


def visible(fixture: Fixture) -> Counter[tuple[str, int]]:
    target = {"output": str(fixture.folder / "table"), "key": KEY}
    values = (json.loads(value or b"{}") for value in read_all(suite_sinks()["delta"].read(target)).value)
    return Counter((row["session_key"], row["j"]) for row in values)


def refusal(fixture: Fixture, asked: PipelineConfig) -> str:
    with fixture.pipeline(asked) as pipeline, pytest.raises(UserError) as refused:
        pipeline.start()
        wait_for("the refusal", lambda: False, [pipeline])
    return str(refused.value)


@pytest.mark.slow  # `test_starts` and `test_delta_gone` refuse such starts
def test_a_lost_checkpoint_and_a_reused_sink_id_are_refused_and_lose_nothing(fixture: Fixture) -> None:
    fixture.send([*session("d-1"), *session("d-22")])
    first = config(fixture)
    with fixture.pipeline(first) as pipeline:
        pipeline.start()
        wait_for("the first batch", lambda: position(first.record) == fixture.input_ends(), [pipeline])
        second = config(fixture, checkpoint=fixture.folder / "second", record=fixture.folder / "second-record")
        assert "two pipelines share the sink_id" in refusal(fixture, second)
        fixture.send(session("d-333"))
        wait_for("the next batch", lambda: position(first.record) == fixture.input_ends(), [pipeline])
        pipeline.stop()
    shutil.rmtree(first.checkpoint)
    said = refusal(fixture, config(fixture, record=fixture.folder / "lost-record"))
    assert "The checkpoint is new" in said
    assert "take a new sink_id" in said
    assert visible(fixture) == every_row("d-1", "d-22", "d-333")


@pytest.fixture
def output(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Output]:
    """A table whose rows have a column of every type."""
    kind = SINKS["delta"]
    give_the_job(monkeypatch, schema(FLAT | NESTED))
    (support,) = [each for each in kind.supports if (each.guarantee, each.variant) == (EXACTLY_ONCE, "idempotent")]
    with spark_session(sinkless(lab, tmp_path, [kind]), kind.spark) as spark:
        yield make_output(kind, support, lab, spark, tmp_path / "delta", f"delta-{tmp_path.name}")


def mark_of(output: Output) -> Mark:
    """The marker of the newest batch, as a start finds it."""
    with closing(open_sink(output.kind, output.config)) as sink:
        sink.start(output.support, 1, [])
        return sink.marks()[WHOLE_BATCH]


def digest_of(output: Output, rows: DataFrame) -> int:
    """The digest of a batch of these rows, as its tasks sum it up."""
    with closing(open_sink(output.kind, output.config)) as sink:
        hashes = deliverable(rows, sink).select(digest.HASH).toArrow().column(0)
    return digest.digest(hashes.combine_chunks())


@pytest.mark.slow  # the contract tests compare such digests of rows without rare types
def test_the_digest_of_a_commits_files_is_that_of_its_batch_for_every_type_and_null(output: Output) -> None:
    rows = frame(output.spark, FLAT | NESTED)
    assert not output.deliver_frame(0, rows, die_at="after-commit")
    assert mark_of(output) == Mark(0, 3, digest_of(output, rows))
    output.spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")  # a driver on a machine of another zone
    other = rows.withColumn("struct", f.when(f.col("at") == 1, f.col("struct")))  # null in place of a nested time
    with pytest.raises(NondeterministicReplay, match="Rows and their tasks must depend on the input alone"):
        output.deliver_frame(0, other)
    assert output.deliver_frame(0, rows), "the replay of the same rows is accepted"
    assert stored(output) == 3


def stored(output: Output) -> int:
    return output.spark.read.format("delta").load(output.config.output["output"]).count()
