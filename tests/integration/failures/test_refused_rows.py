"""A row that the table refuses ends the job for good, whoever writes it.

The writers are our tasks, Delta and Spark's own writer.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from oncebench.delivery.contract import AT_MOST_ONCE, Support
from oncebench.delivery.failures.cause import dropped
from oncebench.delivery.journal import open_journal
from oncebench.lab.lab import Lab
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.postgres.connection import VARIABLE, connect
from oncebench.sinks.registry import SINKS
from pipeline.failures import explain
from tests.contract.attempts import Output, identity, make_output, rows_for
from tests.spark_sessions import sinkless, spark_session

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture(scope="module")
def spark(lab: Lab, server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    kinds = [SINKS[name] for name in ("postgres", "delta", "sqlite")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, server.dsn)  # its workers have the environment of its start
        with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"), kinds), SINKS["delta"].spark) as started:
            yield started


def constrain_postgres(output: Output) -> None:
    table = sql.Identifier(output.config.output["output"])
    with connect("operator") as operator:
        operator.execute(sql.SQL("ALTER TABLE {} ADD CHECK (session_key <> 'refused')").format(table))


def constrain_delta(output: Output) -> None:
    table = output.config.output["output"]
    output.spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT kept CHECK (session_key <> 'refused')")


def constrain_sqlite(output: Output) -> None:
    with closing(sqlite3.connect(output.config.output["output"])) as connection:
        connection.execute(
            "CREATE TRIGGER kept BEFORE INSERT ON rows WHEN NEW.session_key = 'refused' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )


CONSTRAIN: dict[str, Callable[[Output], None]] = {
    "postgres": constrain_postgres, "delta": constrain_delta, "sqlite": constrain_sqlite,
}  # fmt: skip
# `test_delta_table` has a job that meets such a row.
CASES = [
    pytest.param(sink, support, marks=pytest.mark.slow if sink == "delta" else ())
    for sink in CONSTRAIN
    for support in SINKS[sink].supports
    if not support.expected_anomaly
]


@pytest.mark.parametrize(("sink", "support"), CASES, ids=lambda each: getattr(each, "variant", each))
def test_a_row_that_the_table_refuses_ends_the_job_for_good(
    lab: Lab, spark: SparkSession, tmp_path: Path, sink: str, support: Support
) -> None:
    name = f"refused_{uuid.uuid4().hex[:10]}"
    output = make_output(SINKS[sink], support, lab, spark, tmp_path / name, name)
    assert output.deliver(0, [rows_for("first"), rows_for("second")])
    CONSTRAIN[sink](output)
    refused = [rows_for("third"), rows_for("refused")]
    with pytest.raises(Exception, match=r"(?i)check|abort|constraint") as failed:
        output.deliver(1, refused)
    said = explain(failed.value, open_journal(output.config.checkpoint, identity(output.config)))
    assert not said.restart_helps, said
    assert "a row breaks a constraint of the table" in str(said)
    if support.guarantee == AT_MOST_ONCE:
        assert str(said).endswith(dropped(1)), said
        assert output.deliver(1, refused), "a restart drops what is missing of the batch"
        assert output.deliver(2, [rows_for("fourth"), rows_for("fifth")]), "and goes on"
