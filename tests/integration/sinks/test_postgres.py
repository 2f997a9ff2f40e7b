"""The PostgreSQL sink and service on a real server.

The tests cover fencing, commit, crashes, hostile keys, the reader, and refusals.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import psutil
import psycopg
import pytest
from psycopg import sql

from oncebench.delivery.contract import Mark
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, NondeterministicReplay, RefusedStart
from oncebench.errors import MissingEnvironment
from oncebench.servers import postgres_home
from oncebench.servers.postgres import SERVICE, PostgresServer, start_postgres
from oncebench.sinks.postgres import writers
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.sinks.postgres.sink import PostgresSink
from oncebench.workdir import open_work_dir
from tests.integration.sinks.postgres_output import (
    Output,
    batch,
    digest_of,
    drop_connections,
    write,
    writer_of,
)

pytestmark = pytest.mark.integration
HOSTILE = [
    "'; DROP TABLE x; --", '"', "\\", "\\N", "\\.", "a\n\\.\nb", "\t\r\n", "", " ", "NULL", "{a,b}", "%s %(x)s", "\x00",
    "a\x00b\u2400\u24000", "\U0001f600", "\u05e9\u05dc\u05d5\u05dd\u202e", "e\u0301", "\ufffe", "k" * 10_000,
    "\\" * 10_000,
]  # fmt: skip


@pytest.fixture
def output(server: PostgresServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Output]:
    monkeypatch.setenv(VARIABLE, server.dsn)
    with ExitStack() as stack:
        stack.callback(drop_connections)
        yield Output(f"t{abs(hash(request.node.name)) % 10**12}", stack)


def called(processes: Iterable[psutil.Process]) -> Iterator[tuple[psutil.Process, tuple[str, list[str]]]]:
    """Name and command line of the processes that are still there.

    PostgreSQL has workers that end by themselves.
    """
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            yield each, (each.name(), each.cmdline())


def test_the_service_names_its_server_while_it_is_open_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    ours = psutil.Process()  # not all of the machine: another worker of these tests has servers of its own
    before = ours.children(recursive=True)
    with open_work_dir(tmp_path / "work") as work, SERVICE.open(work.path):
        with psycopg.connect(os.environ[VARIABLE]) as connection:
            names = ["fsync", "listen_addresses", "unix_socket_directories", "track_commit_timestamp"]
            found = [connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in names]
            assert found == [("on",), ("127.0.0.1",), ("",), ("on",)]
        password = psycopg.conninfo.conninfo_to_dict(os.environ[VARIABLE])["password"]
        running = dict(called(each for each in ours.children(recursive=True) if each not in before))
        servers = [each for each, (name, _) in running.items() if name == "postgres"]
        assert servers
        assert not any(str(password) in word for _, words in running.values() for word in words)
    assert VARIABLE not in os.environ
    assert not [each for each in servers if each.is_running()]
    assert str(password) not in (tmp_path / "work" / "logs" / "postgres.log").read_text()


def test_a_place_that_the_servers_user_cannot_get_to_is_replaced_by_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has to run it as somebody else")
    monkeypatch.setattr(postgres_home, "_reachable", lambda _path: False)
    with start_postgres(tmp_path) as server:
        data = server.data
        assert psutil.Process(server.pid).uids().real != 0
    assert not data.parents[2].exists()


def test_the_users_own_server_is_used_and_left_alone(server: PostgresServer, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv(VARIABLE, server.dsn)
    password = str(psycopg.conninfo.conninfo_to_dict(server.dsn)["password"])
    with SERVICE.open(tmp_path) as opened:
        assert opened.theirs
        assert password not in opened.theirs
        assert os.environ[VARIABLE] == server.dsn
    assert server.alive
    assert os.environ[VARIABLE] == server.dsn
    assert not list(tmp_path.iterdir())


def test_a_server_that_cannot_be_used_is_told_without_its_password(
    server: PostgresServer, tmp_path: Path, monkeypatch: Any
) -> None:
    wrong = server.dsn.replace("postgres:", "postgres:hunter2", 1)
    for dsn in (wrong, "postgresql://joe:hunter2@127.0.0.1:1/rows", "hunter2"):
        monkeypatch.setenv(VARIABLE, dsn)
        with pytest.raises(MissingEnvironment) as refused, SERVICE.open(tmp_path):
            pass
        assert "hunter2" not in str(refused.value)
        assert "--postgres" in str(refused.value) or "unset it" in str(refused.value)


def test_prepared_rows_are_invisible_until_committed_and_commit_may_be_repeated(output: Output) -> None:
    sink = output.sink()
    prepared = {p: write(sink.prepare_writer(), 0, p, batch(f"k{p}")) for p in (0, 1)}
    assert output.visible() == {}
    assert len(output.reader().leftovers()) == 2
    assert sink.commit(0, prepared) == set()
    assert sink.commit(0, prepared) == set()
    assert output.visible() == {"k0": 2, "k1": 2}
    assert output.reader().leftovers() == []
    assert output.sink().marks().keys() == {0, 1}


def test_a_prepared_transaction_that_was_rolled_back_is_lost_and_one_that_was_committed_is_not(output: Output) -> None:
    sink = output.sink()
    prepared = {p: write(sink.prepare_writer(), 0, p, batch(f"k{p}")) for p in (0, 1)}
    with psycopg.connect(os.environ[VARIABLE], autocommit=True) as connection:
        connection.execute(sql.SQL("COMMIT PREPARED {}").format(sql.Literal(prepared[0]["gid"])))
        connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(prepared[1]["gid"])))
    assert sink.commit(0, prepared) == {1}
    again = {1: write(sink.prepare_writer(), 0, 1, batch("k1"))}
    assert sink.commit(0, again) == set()
    assert output.visible() == {"k0": 2, "k1": 2}


def test_a_start_rolls_back_what_no_decision_names_so_that_a_replay_does_not_wait_for_it(output: Output) -> None:
    first = output.sink()
    kept, orphan = (write(first.prepare_writer(), 0, p, batch(f"k{p}")) for p in (0, 1))
    drop_connections()
    second = output.sink(keep=[{"partition": 0, **kept}])
    again = write(second.prepare_writer(), 0, 1, batch("k1"))
    assert second.commit(0, {0: kept, 1: orphan}) == {1}
    assert second.commit(0, {1: again}) == set()
    assert output.visible() == {"k0": 2, "k1": 2}


def test_a_paused_zombie_is_ended_before_its_locks_hold_anybody_up_and_writes_nothing_more(output: Output) -> None:
    first = output.sink("idempotent")
    younger: list[PostgresSink] = []

    def take_over() -> None:
        zombie = dict(writers._connections)
        writers._connections.clear()
        younger.append(output.sink("idempotent"))
        write(younger[0].idempotent_writer(), 0, 0, batch("k"))
        drop_connections()
        writers._connections.update(zombie)

    with pytest.raises(DeliveryFailed, match="PostgreSQL did not take the rows"):
        write(first.idempotent_writer(), 0, 0, batch("k"), before_prepare=take_over)
    with pytest.raises(AnotherDriver, match="another driver"):
        write(first.idempotent_writer(), 1, 0, batch("later"))
    assert output.visible() == {"k": 2}


@pytest.mark.parametrize("variant", ["two-phase", "idempotent", "upsert"])
def test_hostile_keys_come_back_as_they_were_under_every_exactly_once_variant(output: Output, variant: str) -> None:
    sink = output.sink(variant)
    rows = batch(*HOSTILE)
    for _ in range(2 if variant == "upsert" else 1):
        prepared = write(writer_of(sink, variant), 0, 0, rows.slice(0, 3), rows.slice(3))
        if prepared:
            assert sink.commit(0, {0: prepared}) == set()
    assert output.visible() == dict.fromkeys(HOSTILE, 2)


def test_the_ledger_refuses_a_batch_that_is_there_and_other_rows_of_it_loudly(output: Output) -> None:
    sink = output.sink("idempotent")
    write(sink.idempotent_writer(), 4, 0, batch("k"))
    write(sink.idempotent_writer(), 4, 0, batch("k"))
    assert output.visible() == {"k": 2}
    with pytest.raises(NondeterministicReplay, match="batch 4, partition 0"):
        write(sink.idempotent_writer(), 4, 0, batch("other"))
    assert output.visible() == {"k": 2}
    (mark,) = output.sink("idempotent").marks().values()
    assert mark == Mark(4, 2, digest_of(batch("k")), mark.driver)


def test_a_commit_whose_answer_was_lost_is_settled_by_the_ledger(output: Output, monkeypatch: Any) -> None:
    sink = output.sink("idempotent")
    committed: list[bool] = []

    def lossy(connection: psycopg.Connection, *names: Any) -> bool:
        put = real(connection, *names)
        if not committed:
            execute = connection.execute

            def lose(statement: Any, *more: Any, **how: Any) -> Any:
                if statement == "COMMIT":
                    if commits:
                        execute("COMMIT")
                    committed.append(commits)
                    connection.close()
                    raise psycopg.OperationalError("the connection is gone")
                return execute(statement, *more, **how)

            connection.execute = lose  # type: ignore[method-assign]
        return bool(put)

    real = writers.tables.put_in_ledger
    monkeypatch.setattr(writers, "tables", SimpleNamespace(**{**vars(writers.tables), "put_in_ledger": lossy}))
    commits = True
    write(sink.idempotent_writer(), 0, 0, batch("there"))
    committed.clear()
    commits = False
    drop_connections()
    with pytest.raises(DeliveryFailed):
        write(sink.idempotent_writer(), 1, 0, batch("not there"))
    assert output.visible() == {"there": 2}


def test_the_reader_shows_a_row_once_also_when_a_smaller_id_commits_later_or_it_is_upserted(output: Output) -> None:
    sink = output.sink("two-phase")
    reader = output.reader()
    early = write(sink.prepare_writer(), 0, 0, batch("early"))
    late = write(sink.prepare_writer(), 0, 1, batch("late"))

    def seen() -> list[tuple[str, int]]:
        rows = reader.poll(0)
        return [(orjson.loads(v)["session_key"], o) for v, o in zip(rows.value, rows.offset, strict=True)]

    assert seen() == []
    sink.commit(0, {1: late})
    assert seen() == [("late", 4), ("late", 5)]  # the start's made-up row took id 1
    sink.commit(0, {0: early})
    assert seen() == [("early", 2), ("early", 3)]
    assert seen() == []
    upsert = output.sink("upsert")
    write(upsert.acknowledged_writer(), 1, 0, batch("late", "new"))
    assert sorted(key for key, _ in seen()) == ["new", "new"]
    assert output.visible() == {"early": 2, "late": 2, "new": 2}


def test_prepared_transactions_outlive_a_sigkill_of_the_server_and_are_committed_after_it(own: PostgresServer) -> None:
    with ExitStack() as stack:
        stack.callback(drop_connections)
        output = Output("crash", stack)
        sink, reader = output.sink(), output.reader()
        prepared = {p: write(sink.prepare_writer(), 0, p, batch(f"k{p}")) for p in (0, 1)}
        own.kill()
        assert len(reader.poll(0)) == 0
        own.start()
        assert sink.commit(0, prepared) == set()
        assert output.visible() == {"k0": 2, "k1": 2}
        assert len(reader.poll(5)) == 4
        next_one = {0: write(sink.prepare_writer(), 1, 0, batch("next"))}  # the worker makes its connection anew
        own.kill()
        own.start()
        restarted = output.sink(keep=[{"partition": p, **each} for p, each in next_one.items()])
        assert restarted.commit(1, next_one) == set()
        assert output.visible() == {"k0": 2, "k1": 2, "next": 2}


def test_a_server_that_has_recovered_from_the_kill_of_a_session_has_ended_all_others_and_lets_new_ones_in(
    own: PostgresServer,
) -> None:
    with psycopg.connect(own.dsn, autocommit=True) as older, psycopg.connect(own.dsn) as killed:
        before = psutil.Process(own.pid).children()
        os.kill(killed.info.backend_pid, signal.SIGKILL)
        own.wait_until_recovered(before)
        psycopg.connect(own.dsn).close()
        with pytest.raises(psycopg.OperationalError):
            older.execute("SELECT 1")


def test_a_start_that_cannot_keep_the_guarantee_is_refused_with_what_to_do(output: Output) -> None:
    with pytest.raises(RefusedStart, match=r"max_prepared_transactions is 512. Set it to 1026 or more"):
        output.sink(partitions=513)
    output.sink("idempotent", partitions=513)
    with psycopg.connect(os.environ[VARIABLE], autocommit=True) as connection:
        table = sql.Identifier(output.target["output"])
        connection.execute(sql.SQL("ALTER TABLE {} ALTER COLUMN total TYPE text").format(table))
        with pytest.raises(RefusedStart, match=r"its column total is text, not bigint.*CREATE TABLE"):
            output.sink()
        connection.execute(sql.SQL("DROP TABLE {}").format(table))
        with pytest.raises(RefusedStart, match=r"there is none in this database"):
            output.sink()


def test_a_table_that_keeps_rows_out_fails_the_task_and_shows_none_of_them(output: Output) -> None:
    sink = output.sink()
    with psycopg.connect(os.environ[VARIABLE], autocommit=True) as connection:
        connection.execute("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        table = sql.Identifier(output.target["output"])
        connection.execute(
            sql.SQL("CREATE TRIGGER t BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION nothing()").format(table)
        )
    with pytest.raises(DeliveryFailed, match="the table took 0 of 2 rows"):
        write(sink.prepare_writer(), 0, 0, batch("k"))
    assert output.visible() == {}
    assert output.reader().leftovers() == []


@pytest.mark.parametrize(
    "other", ["ALTER TABLE {} SET UNLOGGED", "ALTER TABLE {0} RENAME TO x; CREATE VIEW {0} AS TABLE x"]
)
def test_a_table_that_a_killed_server_would_not_keep_is_refused(output: Output, other: str) -> None:
    output.sink()
    with psycopg.connect(os.environ[VARIABLE], autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS x")
        connection.execute(sql.SQL(other).format(sql.Identifier(output.target["output"])))
    with pytest.raises(RefusedStart, match="not kept when the server is killed"):
        output.sink()
