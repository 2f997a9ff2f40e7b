"""Hanging transactions: open before the coordinator was asked, and after the fence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest
from kafka.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.kafka.coordinator import Transaction
from oncebench.sinks.kafka.hanging_transactions import end_hanging_transactions
from oncebench.sinks.kafka.leaders import OpenIn

HANGING = OpenIn("out", 1, 205, 11)
TOPICS = ("out", "__consumer_offsets")


class Pretended:
    """A coordinator and leaders, which list partitions several times.

    `looks`: the result of each list of `out`.
    """

    def __init__(self, state: str, *looks: list[OpenIn]) -> None:
        self.state, self.looks = state, list(looks)
        self.marked: list[tuple[OpenIn, bool]] = []
        self.fenced: list[str] = []
        self.refuses: type[Exception] | None = None
        self.lists: list[dict[str, Any]] = []
        self.leaders = self

    def listed(self, prefix: str, **filters: Any) -> list[Transaction]:
        self.lists.append(filters)
        ids = filters.get("producer_id_filters", {11})
        return [Transaction(f"{prefix}1", 11, -1, self.state)] if 11 in ids else []

    def open_in(self, topic: str) -> list[OpenIn]:
        if topic != "out":
            raise TopicAuthorizationFailedError(topic)
        return self.looks.pop(0)

    def describe(self, names: Iterable[str]) -> dict[str, Transaction]:
        return {name: Transaction(name, 11, 3, self.state) for name in names}

    def write_transaction_marker(self, place: OpenIn, epoch: int, commit: bool) -> None:
        assert epoch == 3
        if self.refuses is not None:
            raise self.refuses
        self.marked.append((place, commit))


class Nothing:
    """Decision notes without any entry."""

    def write(self, transaction: Transaction, commit: bool) -> None:
        assert (transaction.epoch, commit) == (3, transaction.state == "CompleteCommit")

    def read(self, _fenced: Transaction) -> bool | None:
        return None


def ended(world: Any) -> list[tuple[OpenIn, bool]]:
    end_hanging_transactions(world, "it.", TOPICS, cast("Any", Nothing()), world.fenced.extend)
    return list(world.marked)


@pytest.mark.parametrize(("state", "commit"), [("CompleteCommit", True), ("CompleteAbort", False)])
def test_a_hanging_transaction_is_ended_as_decided(state: str, commit: bool) -> None:
    world = Pretended(state, [HANGING], [HANGING], [HANGING])
    assert ended(world) == [(HANGING, commit)]
    assert world.fenced == ["it.1"]


def test_a_transaction_that_began_after_the_first_list_is_not_ended() -> None:
    later = OpenIn("out", 1, 999, 11)
    assert ended(Pretended("CompleteCommit", [HANGING], [later])) == []
    assert ended(Pretended("CompleteCommit", [HANGING], [HANGING], [later])) == []
    assert ended(Pretended("CompleteCommit", [HANGING], [HANGING], [])) == []


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_a_transaction_in_progress_is_neither_fenced_nor_ended(state: str) -> None:
    world = Pretended(state, [HANGING])
    assert (ended(world), world.fenced) == ([], [])


def test_foreign_and_closed_transactions_are_left_alone() -> None:
    theirs = OpenIn("out", 0, 5, 12)
    for looks in ([theirs], []):
        world = Pretended("CompleteCommit", looks)
        assert (ended(world), world.fenced) == ([], [])


def test_no_id_is_listed_while_nothing_is_open() -> None:
    world = Pretended("CompleteCommit", [])
    assert (ended(world), world.lists) == ([], [])


def test_only_the_producers_of_open_transactions_are_listed() -> None:
    theirs = OpenIn("out", 0, 5, 12)
    world = Pretended("CompleteCommit", [theirs, HANGING], [theirs, HANGING], [theirs, HANGING])
    assert ended(world) == [(HANGING, True)]
    assert world.lists == [{"producer_id_filters": {11, 12}}]


@pytest.mark.parametrize("ids", [0, 1])
def test_a_missing_topic_counts_as_nothing_open_only_if_there_is_no_id(ids: int) -> None:
    class Fresh(Pretended):
        def open_in(self, topic: str) -> list[OpenIn]:
            raise UnknownTopicOrPartitionError(topic)

        def listed(self, prefix: str, **filters: Any) -> list[Transaction]:
            return super().listed(prefix, **filters)[:ids]

    if ids:  # its transaction may hang there, and a fence would make the coordinator forget the decision
        with pytest.raises(UnknownTopicOrPartitionError):
            ended(Fresh("CompleteCommit"))
    else:
        assert ended(Fresh("CompleteCommit")) == []


def test_a_marker_that_arrives_late_prevents_the_fence() -> None:
    world = Pretended("CompleteCommit", [HANGING], [])
    assert (ended(world), world.fenced) == ([], [])


@pytest.mark.parametrize("state", ["Empty", "Dead"])
def test_a_lost_decision_is_not_guessed(state: str) -> None:
    world = Pretended(state, [HANGING], [HANGING])
    with pytest.raises(RefusedStart, match="no longer knows whether it was committed"):
        ended(world)
    assert (world.marked, world.fenced) == ([], [])


def test_a_missing_right_to_write_markers_is_named() -> None:
    world = Pretended("CompleteCommit", [HANGING], [HANGING], [HANGING])
    world.refuses = ClusterAuthorizationFailedError
    with pytest.raises(RefusedStart, match=r"It is committed.*--operation Alter --cluster"):
        ended(world)
