"""A run on a Spark cluster shows the secrets of its tasks to no other user of the machine."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.integration.kafka_access.runs import command, report_of
from tests.integration.kafka_access.secured import PASSWORD

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_variables_of_executors_are_in_no_command_line(tmp_path: Path) -> None:
    """The sink declares PGPASSWORD for its tasks.

    Executors reach the driver at an address that the user names.
    """
    ended = command(
        tmp_path, "run", "--sink", "postgres", "--guarantee", "exactly-once", "--cluster", "2", "--rate", "300",
        "--sessions", "30", "--start-timeout", "400", "--json", "report.json",
        "--spark-conf", "spark.driver.host=127.0.0.2",
        environment={"PGPASSWORD": PASSWORD, "TMPDIR": gettempdir()},  # PostgreSQL's own user may not read tmp_path
    )  # fmt: skip
    assert report_of(tmp_path, ended)["verdict"] == "kept"
