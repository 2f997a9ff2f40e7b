"""A real PostgreSQL that comes back older, on a new timeline, while a job runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from oncebench.delivery.errors import DeliveryFailed
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.postgres.connection import lineage
from tests.integration.sinks.postgres_output import Output, batch, drop_connections, write, writer_of
from tests.waiting import wait_for

pytestmark = pytest.mark.integration


@pytest.fixture
def output(own: PostgresServer) -> Iterator[Output]:
    with ExitStack() as stack:
        stack.callback(drop_connections)
        yield Output("rows", stack)


def copy_data(own: PostgresServer, old: Path) -> None:
    own.stop()
    subprocess.run(["cp", "-a", own.data, old], check=True)  # with owners and modes
    own.start()


def come_back_as(own: PostgresServer, old: Path) -> None:
    """Replaces the data by an older copy.

    The server recovers as a promoted standby or a restored server does.
    """
    own.kill()
    shutil.rmtree(own.data)
    old.rename(own.data)
    with (own.data / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = 'false'\n")
    signal, owner = own.data / "recovery.signal", own.data.stat()
    signal.touch()
    os.chown(signal, owner.st_uid, owner.st_gid)
    own.start()
    wait_for("the promotion", lambda: not in_recovery(own))


def in_recovery(own: PostgresServer) -> bool:
    with psycopg.connect(own.dsn) as connection:
        return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)


def lineage_of(own: PostgresServer) -> str:
    with psycopg.connect(own.dsn, autocommit=True) as connection:
        return lineage(connection)


@pytest.mark.parametrize("variant", ["idempotent", "two-phase"])
def test_a_job_writes_nothing_to_a_server_that_lacks_its_newest_batches(
    output: Output, own: PostgresServer, variant: str
) -> None:
    old = own.data.with_name("old")
    sink = output.sink(variant)
    writer = writer_of(sink, variant)

    def deliver(number: int) -> None:
        prepared = write(writer, number, 0, batch(f"key {number}"))
        assert variant != "two-phase" or sink.commit(number, {0: prepared}) == set()

    deliver(1)
    before = lineage_of(own)
    copy_data(own, old)
    deliver(2)  # after a restart of the server: the same timeline
    come_back_as(own, old)
    after = lineage_of(own)
    assert before.split(":")[0] == after.split(":")[0]
    with pytest.raises(DeliveryFailed, match=f"{before}, now {after}"):
        deliver(3)
    if variant == "two-phase":
        with pytest.raises(DeliveryFailed, match="a standby took over"):
            sink.commit(2, {0: {"gid": "s:2:0:0"}})
    assert set(output.visible()) == {"key 1"}
    assert output.sink(variant).marks()[0].batch == 1  # the next start compares it
