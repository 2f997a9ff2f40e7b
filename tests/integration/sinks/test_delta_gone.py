"""Delta: a removed table of a job is never made again without an error."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from oncebench.delivery.contract import Support
from oncebench.delivery.errors import PermanentFailure, RefusedStart
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.places import Places
from oncebench.jobs.output import OutputChecks, Target
from oncebench.jobs.start import start_sink
from oncebench.lab.lab import Lab
from oncebench.sinks.registry import SINKS
from pipeline.config import PipelineConfig
from tests.contract.attempts import PARTITIONS, Driver, Output, frame, make_output, rows_for
from tests.pipelines import Fixture, session
from tests.spark_sessions import sinkless, spark_session
from tests.starts import catch_up, refusal

# Slow: `test_delta_table` removes the table of a job.
pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

KIND = SINKS["delta"]
SUPPORTS = [pytest.param(support, id=f"{support.guarantee}-{support.variant}") for support in KIND.supports]


@pytest.fixture(scope="module")
def spark(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"), [KIND]), KIND.spark) as started:
        yield started


@pytest.fixture
def output(lab: Lab, spark: SparkSession, tmp_path: Path, support: Support) -> Output:
    """A table that does not exist yet."""
    return make_output(KIND, support, lab, spark, tmp_path / "delta", f"delta-{tmp_path.name}")


def table_of(output: Output) -> Path:
    return Path(output.config.output["output"])


def started(output: Output, accept: str | None = None) -> tuple[Driver, OutputChecks]:
    """A driver that has started, as a job does."""
    driver, config = output.driver(), output.config
    target = Target(KIND, output.support, config.sink_id, config.output["output"], config.checkpoint)
    folder = driver.journal.folder
    checks = OutputChecks(target, driver.journal, Gaps(folder, accept), Places(folder))
    try:
        start_sink(driver.sink, target, driver.journal, checks)
        checks.record(driver.sink)
    except BaseException:
        driver.sink.close()
        raise
    return driver, checks


def deliver(output: Output, driver: Driver, checks: OutputChecks, number: int) -> None:
    """Delivers a batch with rows, as a job does, and puts it into Spark's logs."""
    for log in ("offsets", "commits"):
        (output.config.checkpoint / log).mkdir(exist_ok=True)
    (output.config.checkpoint / "offsets" / str(number)).touch()
    rows = [rows_for(f"b{number}-{part}") for part in range(PARTITIONS)]
    checks.note_batch(driver.deliver(number, frame(output.spark, rows)))
    (output.config.checkpoint / "commits" / str(number)).touch()


@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("removed_before", [1, 2])
def test_a_running_job_does_not_make_a_removed_table_again(output: Output, removed_before: int) -> None:
    driver, checks = started(output)
    with closing(driver.sink):
        for number in range(removed_before):
            deliver(output, driver, checks, number)
        shutil.rmtree(table_of(output))
        with pytest.raises(PermanentFailure, match=r"is gone \(it was there before\).*Restore the table, or take"):
            deliver(output, driver, checks, removed_before)
    assert not table_of(output).exists()


@pytest.mark.parametrize("support", SUPPORTS)
def test_a_start_refuses_a_removed_table_and_makes_a_new_one_once_that_is_accepted(output: Output) -> None:
    driver, checks = started(output)
    with closing(driver.sink):
        deliver(output, driver, checks, 0)
    shutil.rmtree(table_of(output))
    with pytest.raises(RefusedStart, match=r"is not the output that this checkpoint has written.*\.\.none") as refused:
        started(output)
    assert not table_of(output).exists()
    driver, checks = started(output, accept=str(refused.value).rsplit(": ", 1)[-1])
    with closing(driver.sink):
        deliver(output, driver, checks, 1)
    again, _ = started(output)  # it knows the new table
    again.sink.close()
    assert output.visible() == Counter(row for part in range(PARTITIONS) for row in rows_for(f"b1-{part}"))


def config(fixture: Fixture, guarantee: str, variant: str, **changes: Any) -> PipelineConfig:
    output = {"output": str(fixture.folder / "table")}
    return fixture.config(guarantee, variant, sink="delta", output=output, **changes)


@pytest.mark.parametrize(
    ("guarantee", "variant"),
    [("at-least-once", "acknowledged"), pytest.param("exactly-once", "native", marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_a_job_that_is_started_again_refuses_a_removed_table(fixture: Fixture, guarantee: str, variant: str) -> None:
    asked = config(fixture, guarantee, variant)
    fixture.send(session("a-1"))
    catch_up(fixture, asked)
    table = fixture.folder / "table"
    assert table.exists()
    shutil.rmtree(table)
    said = refusal(fixture, asked)
    assert f"output {str(table)!r} of sink 'delta' is not the output that this checkpoint has written" in said
    assert "accept_gap or --accept-gap: output/table:" in said
    assert not table.exists()
