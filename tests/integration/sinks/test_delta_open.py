"""Delta: a committed batch that is still open, and a table that changes before the start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from oncebench.delivery.batch import Batch, deliverable
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.journal import Identity, open_journal
from oncebench.delivery.protocols import choose, exactly_once_idempotent
from oncebench.delivery.quarantine import Quarantine
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.places import Places
from oncebench.jobs.output import OutputChecks, Target
from oncebench.jobs.start import start_sink
from oncebench.lab.lab import Lab
from oncebench.sinks.delta.sink import DeltaSink
from oncebench.sinks.registry import SINKS
from tests.spark_sessions import sinkless, spark_session

# Slow: `tests/unit/sinks/test_delta.py` and `test_delta_columns.py` compare without Spark.
pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]
KIND = SINKS["delta"]


@pytest.fixture(scope="module")
def spark(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"), [KIND]), KIND.spark) as started:
        yield started


@dataclass
class Job:
    """A job with the Delta sink, each batch in a new driver."""

    spark: SparkSession
    folder: Path

    @property
    def table(self) -> str:
        return f"delta.`file://{self.folder}/table`"

    def runs(self, number: int, rows: DataFrame, finished: bool = True, accept: str | None = None) -> Batch:
        """Starts a driver and delivers a batch; `finished`: Spark's commit log has it then."""
        checkpoint = self.folder / "checkpoint"
        target = Target(KIND, choose(KIND, "exactly-once", "idempotent"), "s", "table", checkpoint)
        journal = open_journal(checkpoint, Identity("s", "delta", "exactly-once", "idempotent", 2))
        for log in ("offsets", "commits"):
            (checkpoint / log).mkdir(exist_ok=True)
        (checkpoint / "offsets" / str(number)).touch()
        gaps, places = Gaps(journal.folder, accept), Places(journal.folder)
        checks = OutputChecks(target, journal, gaps, places)
        with closing(DeltaSink(self.folder / "table", "s", 2, checkpoint)) as sink:
            sink.check_schema(rows.schema)
            start_sink(sink, target, journal, checks)
            checks.record(sink)
            none = Failpoints((), Path("/dev/null"), None)
            batch = Batch(
                deliverable(rows, sink), number, None, none, Quarantine("", "", {}), changed=gaps.changed(number)
            )
            exactly_once_idempotent(batch, sink, journal, "rewrite")
            checks.note_batch(batch)
        if finished:
            (checkpoint / "commits" / str(number)).touch()
        return batch

    def vacuum(self) -> None:
        """Compacts the table and removes its older files, as OPTIMIZE and VACUUM do."""
        table = DeltaTable(str(self.folder / "table"))  # Spark's own commands take minutes on a busy machine
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def visible(self) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in self.spark.table(self.table).collect())


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def orders(job: Job, first: int, *more: str) -> DataFrame:
    return job.spark.range(first, first + 2, numPartitions=2).selectExpr("id", *more)


NEWER = "concat('shop ', id) AS channel"


def test_a_column_may_be_added_while_a_committed_batch_is_open(job: Job) -> None:
    job.runs(0, orders(job, 0))
    job.runs(1, orders(job, 2), finished=False)
    job.spark.sql(f"ALTER TABLE {job.table} ADD COLUMN channel STRING")
    with pytest.raises(RefusedStart, match=r"batch 1 is open, .* have no column 'channel'.*the job's earlier version"):
        job.runs(1, orders(job, 2, NEWER))
    assert job.runs(1, orders(job, 2)).drained
    job.runs(2, orders(job, 4))  # the earlier version may go on, too
    job.runs(3, orders(job, 6, NEWER))
    assert job.visible() == [(at, None) for at in range(6)] + [(6, "shop 6"), (7, "shop 7")]


def test_an_open_batch_whose_files_were_vacuumed_can_be_finished(job: Job) -> None:
    job.runs(0, orders(job, 0))
    job.runs(1, orders(job, 2), finished=False)
    job.vacuum()
    with pytest.raises(
        RefusedStart, match=r"batch 1 is open .* cannot be compared.*or --accept-gap: open/1:uncompared$"
    ):
        job.runs(1, orders(job, 2))
    assert job.runs(1, orders(job, 2), accept="open/1:uncompared").drained
    job.runs(2, orders(job, 4))
    assert job.visible() == [(at,) for at in range(6)]
