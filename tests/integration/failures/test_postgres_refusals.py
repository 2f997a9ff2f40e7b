"""PostgreSQL: what a start finds out, and which time-outs never end a session of the sink."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import unquote_plus

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from oncebench.delivery.errors import DeliveryFailed, NoPostgres, PermanentFailure, RefusedStart
from oncebench.lab.lab import Lab
from oncebench.servers.postgres import PostgresServer, start_postgres
from oncebench.sinks.postgres import slots
from oncebench.sinks.postgres.connection import VARIABLE, connect
from oncebench.sinks.postgres.starting import preparing
from tests.integration.sinks.postgres_output import SINK, Output, Task, batch, drop_connections, write
from tests.pipelines import Fixture, place, session
from tests.waiting import wait_for

pytestmark = pytest.mark.integration
NOTIFY = (
    "CREATE OR REPLACE FUNCTION notify_of_row() RETURNS trigger LANGUAGE plpgsql AS "
    "$$BEGIN PERFORM pg_notify('rows', 'one'); RETURN NULL; END$$;"
    'CREATE TRIGGER noticed AFTER INSERT ON "{}" FOR EACH {} EXECUTE FUNCTION notify_of_row()'
)
SHORT_MS = 300


@pytest.fixture
def output(own: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Output]:
    del own
    with ExitStack() as stack:
        stack.callback(drop_connections)
        yield Output(f"t{abs(hash(request.node.name)) % 10**12}", stack)


@pytest.mark.parametrize("level", ["ROW", "STATEMENT"])
def test_a_trigger_that_notifies_refuses_two_phase_and_no_other_variant(output: Output, level: str) -> None:
    with connect("operator") as operator:
        operator.execute(NOTIFY.format(output.target["output"], level))
        with pytest.raises(RefusedStart, match=r"NOTIFY.*take the variant idempotent"):
            output.sink("two-phase")
        assert operator.execute("SELECT gid FROM pg_prepared_xacts").fetchall() == []
    write(output.sink("idempotent").idempotent_writer(), 1, 0, batch("kept"))
    assert output.visible() == {"kept": 2}


def test_a_trigger_that_notifies_and_came_later_ends_the_batch_for_good(output: Output) -> None:
    writer = output.sink("two-phase").prepare_writer()
    with connect("operator") as operator:
        operator.execute(NOTIFY.format(output.target["output"], "ROW"))
    with pytest.raises(PermanentFailure, match=r"cannot PREPARE.*take the variant idempotent"):
        write(writer, 1, 0, batch("lost"))


def test_a_check_leaves_nothing_and_passes_a_table_with_constraints(output: Output) -> None:
    with connect("operator") as operator:
        operator.execute(f'ALTER TABLE "{output.target["output"]}" ADD CHECK (events > 0), ADD CHECK (total >= 0)')
        output.sink("two-phase")
        assert operator.execute("SELECT gid FROM pg_prepared_xacts").fetchall() == []
    assert output.visible() == {}


def test_slots_that_others_hold_are_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    with start_postgres(tmp_path) as server, ExitStack() as stack:
        monkeypatch.setenv(VARIABLE, server.dsn)
        stack.callback(drop_connections)
        output = Output(f"t{abs(hash(request.node.name)) % 10**12}", stack)
        sink = output.sink("two-phase")
        with connect("another application") as other:
            # A task that finds every slot taken prepares when one is free again.
            with _freed_when_waited_for(other):
                prepared = write(sink.prepare_writer(), 1, 0, batch("kept"), before_prepare=lambda: _take_slots(other))
            assert sink.commit(1, {0: prepared}) == set()
            # If none becomes free, the task and the next start name the holders.
            monkeypatch.setattr(slots, "SLOTS_LIMIT_S", 0.5)
            _take_slots(other)
            with pytest.raises(DeliveryFailed, match=r"batch 2, partition 0: .* 'orphan 0' \(of postgres in postgres"):
                write(sink.prepare_writer(), 2, 0, batch("later"))
            with pytest.raises(NoPostgres, match=r"others hold \d+ of them: 'orphan 0' \(of postgres in postgres"):
                output.sink("two-phase")
            _free_slots(other)
            output.sink("two-phase")
        assert output.visible() == {"kept": 2}


def _take_slots(other: psycopg.Connection) -> None:
    row = other.execute("SHOW max_prepared_transactions").fetchone()
    assert row is not None
    for number in range(int(row[0])):
        other.execute("BEGIN")
        other.execute(f"PREPARE TRANSACTION 'orphan {number}'")


def _free_slots(other: psycopg.Connection) -> None:
    for (gid,) in other.execute("SELECT gid FROM pg_prepared_xacts WHERE starts_with(gid, 'orphan')").fetchall():
        other.execute(f"ROLLBACK PREPARED '{gid}'")


@contextmanager
def _freed_when_waited_for(other: psycopg.Connection) -> Iterator[None]:
    """Frees the slots in another thread when the sink reports that it waits for them."""
    waits = threading.Event()

    class Noticing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "'orphan 0'" in record.getMessage():
                waits.set()

    handler = Noticing()
    thread = threading.Thread(target=lambda: waits.wait(30) and _free_slots(other))
    slots._log.addHandler(handler)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        slots._log.removeHandler(handler)


@pytest.mark.parametrize("variant", ["claim", "acknowledged", "two-phase", "idempotent", "upsert"])
def test_no_time_out_of_the_role_ends_a_long_copy(output: Output, variant: str) -> None:
    with connect("operator") as operator:
        for name in preparing.time_outs(operator):
            operator.execute(f"ALTER ROLE CURRENT_USER SET {name} = {SHORT_MS}")
    sink = output.sink(variant)
    writer = {
        "claim": sink.unacknowledged_writer, "two-phase": sink.prepare_writer, "idempotent": sink.idempotent_writer,
    }.get(variant, sink.acknowledged_writer)()  # fmt: skip
    parts = [batch("first"), batch("second")]

    def computed() -> Iterator[pa.RecordBatch]:
        yield parts[0]
        time.sleep(2 * SHORT_MS / 1000)  # the time that passes is the case
        yield parts[1]

    time.sleep(2 * SHORT_MS / 1000)  # an idle session
    prepared = writer.write(Task(1, 0, parts), computed())[0]
    if variant == "two-phase":
        assert sink.commit(1, {0: prepared}) == set()
    assert output.visible() == {"first": 2, "second": 2}


def test_sparks_own_writer_gets_no_time_out_either(output: Output) -> None:
    url = unquote_plus(output.sink("native")._jdbc()["url"])
    with connect("operator") as operator:
        names = preparing.time_outs(operator)
    assert names
    assert all(f"-c {name}=0" in url for name in names)


def test_a_server_that_is_away_is_no_refusal(output: Output, own: PostgresServer) -> None:
    own.kill()
    with pytest.raises(NoPostgres, match="start again when it works"):
        output.sink("idempotent")


def test_a_wrong_password_is_a_refusal(output: Output, own: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, _wrong(own.dsn))
    with pytest.raises(RefusedStart, match="authentication failed"):
        output.sink("idempotent")


def _wrong(dsn: str) -> str:
    user, _, rest = dsn.partition("@")
    return f"{user.rpartition(':')[0]}:wrong@{rest}"


@pytest.mark.slow
@pytest.mark.spark
def test_a_trigger_that_comes_while_the_job_runs_ends_it_once_with_code_2(
    lab: Lab, tmp_path: Path, own: PostgresServer
) -> None:
    fixture = Fixture(lab, tmp_path)
    target = SINK.provide(place(fixture.output.replace("-", "_"), tmp_path))
    config = fixture.config("exactly-once", "two-phase", sink="postgres", output=target)
    fixture.send(session("before"))
    with fixture.pipeline(config) as supervisor, connect("operator") as operator:
        supervisor._environment[VARIABLE] = own.dsn
        count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(target["output"]))
        supervisor.start()
        wait_for("rows", lambda: operator.execute(count).fetchone() == (20,), [supervisor])
        operator.execute(NOTIFY.format(target["output"], "ROW"))
        fixture.send(session("after"))
        child = supervisor.child
        assert child is not None
        wait_for("its end", lambda: not child.alive)
        child.kill_session()
        assert child.returncode == 2
        assert "take the variant idempotent" in supervisor.last_words()
        supervisor.start()
        again = supervisor.child
        assert again is not None
        wait_for("the refusal", lambda: not again.alive)
        again.kill_session()
        assert again.returncode == 2
        assert supervisor.last_words().startswith("refused to start: table")
