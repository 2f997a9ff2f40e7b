"""The jobs of `examples/` keep their promise while they are killed.

A plain consumer and SQL count the output.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from oncebench.lab.lab import Lab
from oncebench.servers.postgres import PostgresServer
from tests.example_jobs import Example, in_table
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ORDERS, IN_A_BATCH = 100, 20  # per kill
KILLS = int(os.environ.get("ONCEBENCH_KILLS", "50"))
# One batch follows the other: a kill comes in any part of the next ones, and sometimes in the start of a query.
LATEST_KILL_S = 1.5
# Kills until one of them was inside a batch: about one of five is between two batches.
MOST_MORE = 5
SEED = 28


def grown(before: list[Counter[str]], after: list[Counter[str]]) -> bool:
    return any(len(new) > len(old) for old, new in zip(before, after, strict=True))


def kill_again_and_again(job: Example, kills: int, counts: Callable[[], list[Counter[str]]]) -> int:
    """Kills the job several times, each time some moments after new rows are visible.

    Returns the number of orders. At least one kill leaves an open batch, which the next start has to run again.
    """
    moments = random.Random(SEED)
    done, inside = 0, 0
    while done < kills or not inside:
        assert done < kills + MOST_MORE, "no kill was inside a batch"
        job.send({"order_id": f"o-{n}", "cents": n} for n in range(ORDERS * done, ORDERS * (done + 1)))
        before = counts()
        with job.start() as running:
            wait_for("new orders", lambda before=before: grown(before, counts()), [running])  # type: ignore[misc]
            time.sleep(moments.uniform(0, LATEST_KILL_S))
            running.kill_session()
        done, inside = done + 1, inside + len(job.open_batches())
    sent = ORDERS * done
    with job.start() as running:
        wait_for("every order", lambda: all(len(found) == sent for found in counts()), [running])
        running.kill_session()
    return sent


@pytest.mark.timeout(900)  # three starts of Spark
def test_the_job_of_the_page_writes_each_order_once_though_it_is_killed(lab: Lab, tmp_path: Path) -> None:
    job = Example(lab, tmp_path, "orders_to_kafka.py", most=IN_A_BATCH)
    sent = kill_again_and_again(job, 2, lambda: [job.in_topic()])
    assert job.in_topic() == Counter(f"o-{number}" for number in range(sent))


@pytest.mark.slow
@pytest.mark.timeout(KILLS * 300)
def test_two_queries_of_a_process_write_each_order_once_under_many_kills(
    lab: Lab, own: PostgresServer, tmp_path: Path
) -> None:
    with psycopg.connect(own.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (order_id text, cents bigint)")
    job = Example(lab, tmp_path, "orders_to_kafka_and_postgres.py", most=IN_A_BATCH)
    sent = kill_again_and_again(job, KILLS, lambda: [job.in_topic(), in_table(own.dsn, "orders")])
    once = Counter(f"o-{number}" for number in range(sent))
    assert (job.in_topic(), in_table(own.dsn, "orders")) == (once, once)
