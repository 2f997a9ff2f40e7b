"""A transaction that several tasks of a batch share: its start and its commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncebench.delivery.contract import NO_BATCH, Mark
from oncebench.delivery.transactions.left import OPEN, Left
from oncebench.sinks.kafka.coordinator import EndTxnResult, Outcome, Transaction
from oncebench.sinks.kafka.drivers import left
from oncebench.sinks.kafka.names import Names
from oncebench.sinks.kafka.rows import writers
from oncebench.sinks.kafka.rows.writers import TransactionalWriter
from oncebench.sinks.kafka.sink import KafkaSink
from tests.unit.sinks.kafka_cluster import OLD, OWN, Cluster, started


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., KafkaSink]:
    return partial(started, monkeypatch)


def test_one_marker_shows_that_a_shared_transaction_is_committed(driver: Callable[..., KafkaSink]) -> None:
    """The other marker is still on its way, and the id has begun the next transaction."""
    cluster = Cluster({OLD: Transaction(OLD, 11, 3, "Ongoing")}, set(), set())
    cluster.numbers = {"it.marker.0": 8 + 1, "it.marker.1": 7 + 1}
    cluster.texts = dict.fromkeys(cluster.numbers, "{}")
    prepared = {"transactional_id": OLD, "producer_id": 11, "epoch": 3}
    sink = driver(cluster, decided=[{**prepared, "batch": 8, "partition": p} for p in (0, 1)], partitions=2)
    assert cluster.taken == [OLD], "an undecided transaction"
    assert sink.commit(8, dict.fromkeys((0, 1), prepared)) == set()
    assert cluster.ended == []


def test_no_marker_is_made_while_that_of_a_shared_transaction_comes(driver: Callable[..., KafkaSink]) -> None:
    """Partition 1 shows the commit, and the marker of 0 is on its way; 2 belongs to a transaction that is open."""
    other = f"{OLD}2"
    known = {OLD: Transaction(OLD, 11, 3, "CompleteCommit"), other: Transaction(other, 12, 3, "Ongoing")}
    cluster = Cluster(known, set(), set())
    cluster.numbers = {"it.marker.1": 8 + 1, "it.marker.2": 7 + 1}
    cluster.texts = dict.fromkeys(cluster.numbers, "{}")
    shared = {"transactional_id": OLD, "producer_id": 11, "epoch": 3, "batch": 8}
    alone = {"transactional_id": other, "producer_id": 12, "epoch": 3, "batch": 8}
    decided = [{**shared, "partition": 0}, {**shared, "partition": 1}, {**alone, "partition": 2}]
    driver(cluster, decided=decided, partitions=3).restore_marks({0: NO_BATCH})
    assert "it.marker.0" not in cluster.numbers


def test_one_marker_shows_that_no_partition_of_a_shared_transaction_is_lost(
    driver: Callable[..., KafkaSink],
) -> None:
    """Somebody has reset the marker of the other partition."""
    cluster = Cluster({}, set(), set())
    sink = driver(cluster, partitions=2)
    cluster.end = lambda txns, **_: [EndTxnResult(Outcome.ELSEWHERE, 48, doubtful=False) for _ in txns]  # type: ignore[method-assign, assignment, misc]
    cluster.known = {OWN: Transaction(OWN, 12, 0, "CompleteCommit")}
    cluster.numbers, cluster.texts = {"it.marker.1": 8 + 1}, {"it.marker.1": "{}"}
    shared = {"transactional_id": OWN, "producer_id": 12, "epoch": 0}
    assert sink.commit(8, dict.fromkeys((0, 1), shared)) == set()


def test_a_command_takes_one_marker_for_the_commit_of_a_shared_transaction() -> None:
    found = Left(OWN, OPEN, batch=8, partitions=(0, 1))
    assert left._committed({0: Mark(7, 0, None), 1: Mark(8, 0, None)}, found)
    assert not left._committed({0: Mark(7, 0, None)}, found)


def test_a_shared_transaction_is_ended_once(driver: Callable[..., KafkaSink]) -> None:
    cluster = Cluster({}, set(), set())
    sink = driver(cluster, partitions=3)
    shared = {"transactional_id": OWN, "producer_id": 12, "epoch": 0}
    other = {"transactional_id": "it.txn.g2.7.c", "producer_id": 13, "epoch": 0}
    cluster.known = {entry["transactional_id"]: Transaction(**entry, state="Ongoing") for entry in (shared, other)}  # type: ignore[arg-type, index, misc]
    assert sink.commit(8, {0: shared, 1: other, 2: shared}) == set()
    assert cluster.ended == [OWN, "it.txn.g2.7.c"]


@pytest.mark.parametrize(("open_for_s", "shared"), [(0.0, True), (29.0, True), (31.0, False)])
def test_a_transaction_is_shared_until_half_of_its_time_out(
    monkeypatch: pytest.MonkeyPatch, open_for_s: float, shared: bool
) -> None:
    """A batch that takes longer than the time-out would otherwise lose all its rows again and again."""
    names = Names("s", 1, "out")
    one = SimpleNamespace(
        name="id", sound=True, open_batch=7, used_at=time.monotonic(), open_for_s=lambda: open_for_s, look=lambda: None
    )
    monkeypatch.setattr(writers, "_producers", {names.own_prefix: [one]})
    writer = TransactionalWriter({}, names, 60_000, commits=False, ended={}, retired=frozenset())
    assert writer._sharing(7) is (one if shared else None)
    assert replace(writer, ended={"id": 7})._sharing(8) is None, "its transaction is committed"


def test_a_transaction_that_became_too_old_while_rows_were_computed_is_not_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = iter(["the old one", None])
    monkeypatch.setattr(TransactionalWriter, "_sharing", lambda *_: next(found))
    monkeypatch.setattr(TransactionalWriter, "_producer", lambda *_: "a new one")
    writer = TransactionalWriter({}, Names("s", 1, "out"), 60_000, commits=False, ended={}, retired=frozenset())
    assert writer._begin(cast("Any", SimpleNamespace(batch=7)), iter([cast("Any", "rows")]))[:2] == (
        "a new one",
        "rows",
    )
