"""The stateful jobs of `examples/` write each result once though they are killed.

SQL and DuckDB count the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable

from oncebench.lab.lab import Lab
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.registry import SINKS
from tests.example_jobs import Example
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

BEGIN = datetime(2026, 11, 25, 8, tzinfo=UTC)
SHOPS, AT_A_TIME, TIMES = ("a", "b"), 5, 6
APART = timedelta(minutes=5)  # longer than a window, and than the gap that ends a visit
Result = list[tuple[Any, ...]]


def orders(times: range) -> list[Mapping[str, Any]]:
    """Orders of each shop, some in a few seconds at each of these times."""
    return [
        {
            "order_id": f"{shop}-{time}-{number}",
            "shop": shop,
            "cents": 100 + number,
            "at": (BEGIN + time * APART + timedelta(seconds=number)).isoformat(),
        }
        for time in times
        for shop in SHOPS
        for number in range(AT_A_TIME)
    ]


def killed_once_per_wave(job: Example, read: Callable[[], Result]) -> None:
    """Kills the job after each wave of orders with new results; lets the last wave end."""
    for wave in range(0, TIMES, 2):
        before = read()
        job.send(orders(range(wave, wave + 2)))
        with job.start() as running:
            wait_for("new results", lambda before=before: read() != before, [running])  # type: ignore[misc]
            running.kill_session()
    job.send(orders(range(TIMES, TIMES + 1)))  # the watermark passes all times before
    with job.start() as running:
        wait_for("every result", lambda: len(read()) >= TIMES * len(SHOPS), [running])
        running.kill_session()


EXPECTED = sorted((shop, BEGIN + time * APART) for shop in SHOPS for time in range(TIMES))


def test_windows_are_in_postgresql_once(lab: Lab, own: PostgresServer, tmp_path: Path) -> None:
    with psycopg.connect(own.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE sales (shop text, minute timestamptz, orders bigint, cents bigint)")

        def read() -> Result:
            return connection.execute("SELECT shop, minute, orders, cents FROM sales ORDER BY 1, 2").fetchall()

        killed_once_per_wave(Example(lab, tmp_path, "windows_to_postgres.py"), read)
        total = sum(100 + number for number in range(AT_A_TIME))
        assert read() == [(shop, at, AT_A_TIME, total) for shop, at in EXPECTED]


def test_sessions_are_in_delta_once(lab: Lab, tmp_path: Path) -> None:
    def read() -> Result:
        if not DeltaTable.is_deltatable(str(tmp_path / "visits")):
            return []
        visits = DeltaTable(str(tmp_path / "visits")).to_pyarrow_table()  # noqa: F841  DuckDB finds it by its name
        return duckdb.sql("SELECT shop, began, orders FROM visits ORDER BY 1, 2").fetchall()

    killed_once_per_wave(Example(lab, tmp_path, "sessions_to_delta.py", [SINKS["delta"]]), read)
    assert [(shop, at.astimezone(UTC), n) for shop, at, n in read()] == [(*each, AT_A_TIME) for each in EXPECTED]
