"""Commits of several drivers to one real table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from iceberg_tables import EXACTLY_ONCE, Tables, marker
from oncebench_iceberg import commit
from oncebench_iceberg.catalogs.errors import CATALOG_ERRORS
from oncebench_iceberg.columns import arrow_schema
from oncebench_iceberg.commit import Commits, Unanswered
from oncebench_iceberg.marker import Keys
from oncebench_iceberg.retried import RetriedAppend
from oncebench_iceberg.sink import SUPPORTS
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, NoSuchTableError, ServiceUnavailableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, LongType
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from oncebench.delivery.contract import Support
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, RefusedStart


def test_rows_and_marker_come_in_one_commit(tables: Tables) -> None:
    driver = tables.started("one", 1)
    before = tables.load().metadata
    driver.append(tables.files("a", "b"), marker(0))
    after = tables.load().metadata
    assert len(after.metadata_log) == len(before.metadata_log) + 1
    snapshot = after.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    text = after.properties["oncebench.marker.job"]
    assert snapshot.summary.additional_properties["oncebench.marker.job"] == text
    assert f'"snapshot": {snapshot.snapshot_id}' in text
    assert tables.keys() == ["a", "b"]


def test_a_stopped_driver_appends_nothing_behind_its_successor(tables: Tables) -> None:
    stopped = tables.started("one", 1)
    successor = tables.started("two", 2)
    successor.append(tables.files("a"), marker(0, "two"))
    with pytest.raises(AnotherDriver, match="Another driver has taken this sink_id"):
        stopped.append(tables.files("a"), marker(0))
    assert tables.keys() == ["a"]


class StopsBeforeCommit(Commits):
    """A driver that is stopped between its comparison and its commit."""

    meanwhile: Any = None

    def _try_once(self, step: Any, table: Table) -> TableMetadata:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super()._try_once(step, table)


@pytest.mark.parametrize("appends", [True, False])
def test_a_start_fences_a_commit_that_is_already_staged(tables: Tables, appends: bool) -> None:
    stopped = StopsBeforeCommit(tables.catalog(), Keys("job"), "one", 1)
    stopped.take()

    def successor() -> None:
        second = tables.started("two", 2)
        if appends:
            second.append(tables.files("a"), marker(0, "two"))

    stopped.meanwhile = successor
    with pytest.raises(AnotherDriver):
        stopped.append(tables.files("a"), marker(0))
    assert tables.keys() == (["a"] if appends else [])


def test_a_claim_of_a_stopped_driver_is_refused(tables: Tables) -> None:
    stopped = StopsBeforeCommit(tables.catalog(), Keys("job"), "one", 1)
    stopped.take()
    stopped.meanwhile = lambda: tables.started("two", 1)
    with pytest.raises(AnotherDriver):
        stopped.claim(0)
    assert "oncebench.claim.job" not in tables.properties()


def broken(tables: Tables) -> RetriedAppend:
    """The broken twin with a staged commit, overtaken by a successor with the same batch."""
    sink = RetriedAppend(tables.place, "job", 2, "one")
    sink.start(EXACTLY_ONCE, 1, [])
    sink.stage_commit(tables.files("a"), marker(0))
    tables.started("two", 2).append(tables.files("a"), marker(0, "two"))
    return sink


def test_pyicebergs_own_repetition_doubles_rows(tables: Tables) -> None:
    broken(tables).commit_staged()
    assert tables.keys() == ["a", "a"]


def test_without_retries_pyiceberg_doubles_nothing(tables: Tables) -> None:
    tables.properties(**{"commit.retry.num-retries": "0"})
    sink = broken(tables)
    with pytest.raises(CommitFailedException):
        sink.commit_staged()
    assert tables.keys() == ["a"]


def test_a_tag_and_merged_manifests_stop_nothing(tables: Tables) -> None:
    tables.properties(**{"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    driver = tables.started("one", 1)
    for batch in range(4):
        driver.append(tables.files(f"b{batch}"), marker(batch))
        table = tables.load()
        newest = table.current_snapshot()
        assert newest is not None
        table.manage_snapshots().create_tag(newest.snapshot_id, f"t{batch}").commit()
    assert tables.keys() == ["b0", "b1", "b2", "b3"]
    assert len(tables.load().metadata.snapshots) == 5


@pytest.mark.parametrize(("merges", "left"), [("", 1), ("true", 1), ("false", 4)])
def test_small_manifests_are_merged_unless_the_table_forbids_it(tables: Tables, merges: str, left: int) -> None:
    asked = {"commit.manifest-merge.enabled": merges} if merges else {}
    tables.properties(**{"commit.manifest.min-count-to-merge": "4", **asked})
    driver = tables.started("one", 1)
    for batch in range(4):
        driver.append(tables.files(f"b{batch}"), marker(batch))
    table = tables.load()
    newest = table.current_snapshot()
    assert newest is not None
    assert len(newest.manifests(table.io)) == left
    assert tables.keys() == ["b0", "b1", "b2", "b3"]


def test_old_metadata_files_are_removed(tables: Tables) -> None:
    tables.properties(**{"write.metadata.previous-versions-max": "3"})
    driver = tables.started("one", 1)
    for batch in range(6):
        driver.append(tables.files(f"b{batch}"), marker(batch))
    assert len(list(tables.place.warehouse.rglob("*.metadata.json"))) == 4
    assert len(tables.keys()) == 6


def test_a_commit_reads_unchanged_metadata_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tables.started("one", 1)
    loads: list[str] = []
    load = driver.catalog.load
    monkeypatch.setattr(driver.catalog, "load", lambda: (loads.append("load"), load())[1])
    driver.append(tables.files("a"), marker(0))
    driver.append(tables.files("b"), marker(1))
    assert loads == [], "pyiceberg reads it in its commit"
    tables.append_by_other("other")
    driver.append(tables.files("c"), marker(2))
    assert loads == ["load"]
    assert tables.keys() == ["a", "b", "c", "other"]


def test_another_writer_in_between_stops_nothing(tables: Tables) -> None:
    driver = StopsBeforeCommit(tables.catalog(), Keys("job"), "one", 1)
    driver.take()

    driver.meanwhile = lambda: tables.append_by_other("other")
    driver.append(tables.files("a"), marker(0))
    driver.append(tables.files("b"), marker(1))
    assert tables.keys() == ["a", "b", "other"]


def lose_answers(catalog: Any, count: int, meanwhile: Callable[[], Any] = lambda: None) -> list[int]:
    """Lets the next commits of a catalog reach the file, and then fail."""
    lost: list[int] = []

    @event.listens_for(catalog._catalog().engine, "commit")
    def lose(connection: Any) -> None:
        if len(lost) < count:
            connection.connection.dbapi_connection.commit()
            lost.append(1)
            meanwhile()
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))

    return lost


@pytest.mark.parametrize("marked", [True, False])
def test_a_commit_with_a_lost_answer_is_not_made_again(tables: Tables, marked: bool) -> None:
    driver = tables.started("one", 1)
    lost = lose_answers(driver.catalog, 1)
    driver.append(tables.files("a"), marker(0) if marked else None)
    driver.append(tables.files("b"), marker(1) if marked else None)
    assert lost == [1]
    assert tables.keys() == ["a", "b"]


def test_a_start_and_a_claim_survive_a_lost_answer(tables: Tables) -> None:
    driver = Commits(tables.catalog(), Keys("job"), "one", 1)
    lose_answers(driver.catalog, 1)
    driver.take()
    lose_answers(driver.catalog, 1)
    driver.claim(4)
    driver.append(tables.files("a"), None)
    assert tables.keys() == ["a"]
    assert tables.properties()["oncebench.claim.job"] == '{"batch": 4, "driver": "one"}'


def test_a_start_with_a_lost_answer_does_not_stop_its_successor(tables: Tables) -> None:
    first = Commits(tables.catalog(), Keys("job"), "one", 1)
    lose_answers(first.catalog, 1, lambda: tables.started("two", 2))
    first.take()
    with pytest.raises(AnotherDriver):
        first.append(tables.files("a"), marker(0))


def test_a_catalog_that_stays_locked_ends_the_commit(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncebench_iceberg.catalogs.local.BUSY_S", 0.05)
    monkeypatch.setattr(commit, "LIMIT_S", 0.2)
    driver, files = tables.started("one", 1), tables.files("a")
    lock = sqlite3.connect(tables.place.file, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Unanswered, match="database is locked"):
        driver.append(files, marker(0))
    lock.execute("ROLLBACK")
    driver.append(files, marker(0))
    assert tables.keys() == ["a"]


def test_an_older_generation_is_refused(tables: Tables) -> None:
    tables.started("two", 2)
    with pytest.raises(RefusedStart, match=r"has seen generation 2 .* This start is generation 1"):
        tables.started("one", 1)


def test_an_altered_table_takes_no_old_files(tables: Tables) -> None:
    driver, files = tables.started("one", 1), tables.files("a")
    with tables.load().update_schema() as update:
        update.add_column("more", LongType())
    with pytest.raises(DeliveryFailed, match="was altered or replaced since this driver started"):
        driver.append(files, marker(0))


def test_a_dropped_table_is_missed(tables: Tables) -> None:
    driver, files = tables.started("one", 1), tables.files("a")
    driver.catalog._catalog().drop_table(tables.place.table)
    with pytest.raises(NoSuchTableError):
        driver.append(files, marker(0))


def test_a_commit_keeps_how_long_the_branch_keeps_snapshots(tables: Tables) -> None:
    driver = tables.started("one", 1)
    table = tables.load()
    kept = {"min_snapshots_to_keep": 50, "max_snapshot_age_ms": 7, "max_ref_age_ms": 9}
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, MAIN_BRANCH, **kept).commit()
    driver.append(tables.files("a"), marker(0))
    main = tables.load().metadata.refs[MAIN_BRANCH]
    assert {name: getattr(main, name) for name in kept} == kept


def test_a_rollback_under_a_running_driver_is_missed(tables: Tables) -> None:
    driver = tables.started("one", 1)
    for batch in range(3):
        driver.append(tables.files(f"b{batch}"), marker(batch))
    first = tables.load().metadata.snapshots[1].snapshot_id
    tables.load().manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(DeliveryFailed, match="was rolled back or replaced while this driver ran"):
        driver.append(tables.files("b3"), marker(3))
    assert tables.keys() == ["b0"]


def test_a_marked_commit_with_a_lost_answer_outlives_its_snapshot(tables: Tables) -> None:
    sink = tables.sink()
    sink.start(EXACTLY_ONCE, 1, [])
    writer = sink.unacknowledged_writer()
    writer.commits.claim(0)

    def maintain() -> None:
        tables.append_by_other("other")
        tables.expire_all_but_newest()

    lose_answers(writer.commits.catalog, 1, maintain)
    writer.commits.append(tables.files("a"), marker(0) if writer.marked else None)
    assert tables.keys() == ["a", "other"]


def test_a_catalog_damaged_under_a_running_driver_is_a_known_error(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "LIMIT_S", 0.2)
    driver, files = tables.started("one", 1), tables.files("a")
    tables.place.file.write_bytes(b"no database" * 1000)
    with pytest.raises((*CATALOG_ERRORS, Unanswered), match="file is not a database"):
        driver.append(files, marker(0))


def test_a_dropped_column_of_an_earlier_partitioning_stops_no_commit(tables: Tables) -> None:
    with tables.load().update_schema() as change:
        change.add_column("part", DecimalType(9, 2))
    with tables.load().update_spec() as partitioning:
        partitioning.add_field("part", IdentityTransform())
    rows = pa.table({"key": ["a"], "n": [1], "part": [Decimal("0.01")]})
    for _ in range(2):
        tables.load().append(rows.cast(arrow_schema(tables.load().schema())))
    with tables.load().update_spec() as partitioning:
        partitioning.remove_field("part")
    with tables.load().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("part")
    tables.started("one", 1).append(tables.files("b"), marker(0))
    assert tables.keys() == ["a", "a", "b"]


def test_a_driver_goes_on_after_an_earlier_try_that_arrived_late(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tables.started("one", 1)
    files, commits = tables.files("a"), Table._do_commit
    held: list[tuple[Any, ...]] = []

    def late(table: Table, *asked: Any) -> None:
        if not held:
            held.append((table, *asked))
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))
        monkeypatch.setattr(Table, "_do_commit", commits)
        commits(*held[0])
        commits(table, *asked)

    monkeypatch.setattr(Table, "_do_commit", late)
    driver.append(files, marker(0))
    driver.append(tables.files("b"), marker(1))
    assert (len(held), tables.keys()) == (1, ["a", "b"])


@pytest.mark.parametrize("support", SUPPORTS, ids=lambda support: support.variant)
def test_a_lost_look_up_of_the_keys_fails_no_batch(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, support: Support
) -> None:
    sink = tables.sink()
    sink.start(support, 1, [])
    commits = sink._started
    keys, load, loads = {"s3.secret-access-key": "key"}, commits.catalog.load, [ServiceUnavailableError("503")]
    monkeypatch.setattr(commit, "access_of", lambda io: keys)
    commits._access = dict(keys)
    if support.variant == "claim":
        sink.claim(0)

    def answers_late() -> Table:
        if loads:
            raise loads.pop()
        return load()

    monkeypatch.setattr(commits.catalog, "load", answers_late)
    assert commits.access() == keys
    assert len(loads) == (1 if support.variant == "claim" else 0), "a claim has fetched the keys"
    monkeypatch.setattr(commits.catalog, "load", lambda: (_ for _ in ()).throw(ForbiddenError("403")))
    with pytest.raises(ForbiddenError):
        commits.access()
