"""The SQLite sink: what a power cut must not take back.

The page on new sinks prints some of its code.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.kafka_access.access import KafkaAccess
from oncebench.sinks.registry import suite_sinks
from oncebench.sinks.sqlite import sink as sqlite_sink
from oncebench.sinks.sqlite.sink import SQL_TYPES, SUPPORTS, SqliteSink, connect
from oncebench.sinks.suite import Place
from pipeline.rows import KEY, SCHEMA
from tests import ROOT
from tests.unit.sinks.test_files_sink import Task, batches, rows

EXTRA = 3  # PRAGMA synchronous as a number: the folder is forced too, after the rollback journal was taken out of it


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_commit_is_on_the_disk_in_every_journal_mode(tmp_path: Path, mode: str) -> None:
    path = str(tmp_path / "rows.sqlite")
    with closing(connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
        assert connection.execute("PRAGMA synchronous").fetchone() == (EXTRA,)


def test_the_page_on_new_sinks_prints_this_sinks_own_check_of_the_columns() -> None:
    (printed,) = re.findall(
        r"^    def check_schema.*?(?=^`)", (ROOT / "docs" / "adding_a_sink.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert printed.rstrip() in (ROOT / "oncebench" / "sinks" / "sqlite" / "sink.py").read_text()


def test_the_generation_never_goes_back(tmp_path: Path) -> None:
    """A late start of an older driver is refused, and the newer driver's workers continue."""
    target = suite_sinks()["sqlite"].provide(Place("s", tmp_path, 2, KafkaAccess(""), str, SCHEMA, KEY))
    for generation in (2, 3):
        SqliteSink(target["output"], "s", 2).start(SUPPORTS[0], generation, [])
    with pytest.raises(RefusedStart, match="has seen generation 3"):
        SqliteSink(target["output"], "s", 2).start(SUPPORTS[0], 1, [])
    with closing(connect(target["output"])) as connection:
        assert connection.execute("SELECT generation FROM drivers").fetchall() == [(3,)]


@pytest.fixture
def output(tmp_path: Path) -> str:
    return str(suite_sinks()["sqlite"].provide(Place("s", tmp_path, 2, {}, str, SCHEMA, KEY))["output"])


def started(path: str, generation: int = 1) -> SqliteSink:
    sink = SqliteSink(path, "s", 2)
    sink.start(SUPPORTS[0], generation, [])
    return sink


def in_output(path: str) -> int:
    with closing(connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])


def test_a_full_disk_is_named_and_a_restart_writes_the_batch(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite has rolled the transaction back by itself then."""

    def small(path: str) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA max_page_count = 12")
        return connection

    many = [row for number in range(200) for row in rows(f"session-{number}")]
    writer = started(output).idempotent_writer()
    with monkeypatch.context() as full:
        full.setattr(sqlite_sink, "connect", small)
        with pytest.raises(DeliveryFailed, match=r"is full \(the disk is full\)\. Make room on the disk") as failed:
            writer.write(Task(), batches(many))
    assert failed.value.restart_helps
    assert in_output(output) == 0
    started(output, 2).idempotent_writer().write(Task(), batches(many))
    assert in_output(output) == len(many)


def test_a_lock_of_another_program_ends_a_start_but_not_for_good(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_sink, "BUSY_S", 0.1)
    with closing(connect(output)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DeliveryFailed, match=r"is locked: another program.*End that program") as failed:
            started(output)
    assert failed.value.restart_helps
    started(output)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_without_rows_is_refused_and_not_made(tmp_path: Path, is_there: bool) -> None:
    path = tmp_path / "other.sqlite"
    if is_there:
        path.touch()
    with pytest.raises(
        RefusedStart,
        match=r"other\.sqlite (is not there|has no table rows)\. .*'PRAGMA journal_mode = WAL; CREATE",
    ):
        started(str(path))
    assert path.exists() == is_there


def test_a_start_makes_the_tables_of_the_sink(tmp_path: Path) -> None:
    path = str(tmp_path / "other.sqlite")
    columns = ", ".join(f"{field.name} {SQL_TYPES[field.dataType.typeName()]}" for field in SCHEMA)
    with closing(connect(path)) as connection:
        connection.execute(f"CREATE TABLE rows ({columns})")
    started(path).idempotent_writer().write(Task(), batches(rows()))
    assert in_output(path) == len(rows())


def test_a_file_that_was_restored_below_a_worker_is_no_other_driver(output: str) -> None:
    writer = started(output).idempotent_writer()
    with closing(connect(output)) as connection:
        connection.execute("DELETE FROM drivers")
    with pytest.raises(DeliveryFailed, match=r"has generation 0 .*replaced or restored\. Put the newest file back"):
        writer.write(Task(), batches(rows()))
