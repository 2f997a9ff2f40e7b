"""What is promised to wait for the disk does so.

The settings of `synchronous_commit` by role, database or server do not change that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from oncebench.delivery.errors import RefusedStart
from oncebench.lab.lab import Lab
from oncebench.servers.postgres import SERVICE, PostgresServer
from oncebench.sinks.postgres.connection import VARIABLE
from tests.contract.attempts import PARTITIONS, make_output, rows_for
from tests.integration.sinks.postgres_output import SINK, SUPPORTS, Output, batch, drop_connections, write, writer_of
from tests.spark_sessions import sinkless, spark_session
from tests.waiting import wait_for

pytestmark = pytest.mark.integration
OURS = ("acknowledged", "idempotent", "upsert", "two-phase")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        stack.callback(drop_connections)
        yield stack


def do(server: PostgresServer, statement: sql.Composable | str) -> list[Any]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.SQL(statement) if isinstance(statement, str) else statement)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


def wait_for_reload(server: PostgresServer, setting: str, value: str) -> None:
    """Has the server read its settings anew, and waits until this one has its new value."""
    do(server, "SELECT pg_reload_conf()")
    wait_for("the server to read its settings anew", lambda: do(server, f"SHOW {setting}") == [(value,)])


def note_the_setting(server: PostgresServer, table: str) -> None:
    """Each row of the table then tells under which `synchronous_commit` it was put there."""
    column = "ALTER TABLE {} ADD COLUMN waits text DEFAULT current_setting('synchronous_commit')"
    do(server, sql.SQL(column).format(sql.Identifier(table)))


def noted(server: PostgresServer, table: str) -> list[str]:
    return [row[0] for row in do(server, sql.SQL("SELECT waits FROM {} ORDER BY id").format(sql.Identifier(table)))]


def asking_for(server: PostgresServer, setting: str) -> str:
    """A DSN whose sessions begin with that setting, as those of a role or database with it do."""
    return f"{server.dsn}?options={quote(f'-c synchronous_commit={setting}')}"


def test_what_was_acknowledged_outlives_a_kill_of_a_server_whose_role_asks_not_to_wait_for_the_disk(
    own: PostgresServer, stack: ExitStack
) -> None:
    do(own, "ALTER SYSTEM SET wal_writer_delay = '10s'")  # as shipped 0.2 s, after which the rows might be safe by luck
    do(own, "ALTER ROLE postgres SET synchronous_commit = off")
    own.stop()
    own.start()
    there: dict[str, Counter[str]] = {}
    for variant in OURS:
        output = Output(f"role-{variant}", stack)
        sink = output.sink(variant)
        do(own, "CHECKPOINT")
        prepared = write(writer_of(sink, variant), 0, 0, batch("k"))
        if prepared:
            assert sink.commit(0, {0: prepared}) == set()
        own.kill()
        own.start()
        drop_connections()
        there[variant] = output.visible()
    assert there == {variant: {"k": 2} for variant in OURS}


@pytest.mark.parametrize(("asked", "heeded"), [("off", "on"), ("local", "local")])
@pytest.mark.parametrize("variant", ["claim", *OURS])
def test_only_at_most_once_goes_on_without_the_disk_and_every_way_to_wait_for_it_is_left_as_it_is(
    server: PostgresServer, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, variant: str, asked: str, heeded: str
) -> None:
    monkeypatch.setenv(VARIABLE, asking_for(server, asked))
    output = Output(f"waits-{variant}-{asked}", stack)
    note_the_setting(server, output.target["output"])
    sink = output.sink(variant)
    prepared = write(writer_of(sink, variant), 0, 0, batch("k"))
    if prepared:
        assert sink.commit(0, {0: prepared}) == set()
    assert noted(server, output.target["output"]) == ["off" if variant == "claim" else heeded] * 2


def test_a_reload_of_the_servers_settings_does_not_make_a_running_pipeline_go_on_without_the_disk(
    own: PostgresServer, stack: ExitStack
) -> None:
    output = Output("reload", stack)
    note_the_setting(own, output.target["output"])
    sink = output.sink("idempotent")
    write(sink.idempotent_writer(), 0, 0, batch("before"))
    do(own, "ALTER SYSTEM SET synchronous_commit = off")
    wait_for_reload(own, "synchronous_commit", "off")
    write(sink.idempotent_writer(), 1, 0, batch("after"))
    assert noted(own, output.target["output"]) == ["on"] * 4


def test_a_run_can_tell_what_a_commit_of_ours_waits_for(own: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    do(own, "ALTER SYSTEM SET full_page_writes = off")
    monkeypatch.setenv(VARIABLE, asking_for(own, "remote_apply"))
    wait_for_reload(own, "full_page_writes", "off")
    told = SERVICE.durability()
    assert told == {"fsync": "on", "synchronous_commit": "remote_apply", "full_page_writes": "off"}


def test_a_server_that_forces_nothing_to_the_disk_is_refused_by_every_guarantee_that_promises_it(
    own: PostgresServer, stack: ExitStack
) -> None:
    do(own, "ALTER SYSTEM SET fsync = off")
    own.stop()
    own.start()
    output = Output("unforced", stack)
    for variant in (*OURS, "native"):
        with pytest.raises(RefusedStart, match=r"fsync = off.*Set fsync = on in postgresql.conf and reload"):
            output.sink(variant)
    write(output.sink("claim").unacknowledged_writer(), 0, 0, batch("k"))
    assert output.visible() == {"k": 2}


@pytest.mark.spark
def test_sparks_own_writer_waits_for_the_disk_too(
    lab: Lab, server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, server.dsn)
    do(server, "ALTER ROLE postgres SET synchronous_commit = off")
    try:
        with spark_session(sinkless(lab, tmp_path, [SINK.kind])) as spark:
            output = make_output(SINK.kind, SUPPORTS["native"], lab, spark, tmp_path / "native", "native")
            note_the_setting(server, "native")
            assert output.deliver(0, [rows_for(f"k{partition}", 1) for partition in range(PARTITIONS)])
    finally:
        do(server, "ALTER ROLE postgres RESET synchronous_commit")
    assert noted(server, "native") == ["on"] * PARTITIONS
