"""Hanging transactions around a start of the Kafka sink, on a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaException
from kafka.errors import ClusterAuthorizationFailedError, NotLeaderForPartitionError

from oncebench.delivery.contract import NO_BATCH, OVERWRITTEN, Mark
from oncebench.delivery.errors import CommitUncertain, HangingTransaction, RefusedStart
from oncebench.delivery.topics import replicas
from oncebench.sinks.kafka.coordinator import EndTxnResult, Outcome, Transaction
from oncebench.sinks.kafka.leaders import OpenIn
from oncebench.sinks.kafka.sink import KafkaSink
from tests.unit.sinks.kafka_cluster import OLD, OWN, Cluster, place, started


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., KafkaSink]:
    return partial(started, monkeypatch)


def begins_a_batch(sink: KafkaSink) -> None:
    """Begins a batch with a check for hanging transactions."""
    sink._next_check_at = 0.0
    sink.prepare_writer()


def left(state: str) -> Cluster:
    """An older driver's transaction in two partitions; the second never gets its marker."""
    return Cluster({OLD: Transaction(OLD, 11, 3, state)}, {place(0), place(1)}, {place(1)})


@pytest.mark.parametrize(("state", "commit"), [("PrepareCommit", True), ("PrepareAbort", False), ("Ongoing", False)])
def test_a_transaction_that_hangs_during_a_start_is_ended_as_decided(
    driver: Callable[..., KafkaSink], state: str, commit: bool
) -> None:
    cluster = left(state)
    begins_a_batch(driver(cluster))
    assert (cluster.marked, cluster.open) == ([(OLD, commit)], set())
    assert cluster.known[OLD].state == "Empty", "it must be fenced"


@pytest.mark.parametrize("state", ["CompleteCommit", "PrepareCommit", "CompleteAbort", "Ongoing"])
@pytest.mark.parametrize(
    ("refusal", "help_"),
    [(NotLeaderForPartitionError, "Start again"), (ClusterAuthorizationFailedError, r"--operation Alter --cluster$")],
)
def test_the_next_start_has_the_decision_if_no_marker_was_written(
    driver: Callable[..., KafkaSink], state: str, refusal: type[Exception], help_: str
) -> None:
    cluster = left(state)
    if state.startswith("Complete"):
        cluster.open = {place(1)}
    for generation in (2, 3):
        cluster.refuses = refusal
        lacks_rights = refusal is ClusterAuthorizationFailedError
        with pytest.raises(RefusedStart if lacks_rights else HangingTransaction, match=help_) as refused:
            driver(cluster, generation)
        assert ("Alter" in str(refused.value)) == (refusal is ClusterAuthorizationFailedError)
    cluster.refuses = None
    driver(cluster, 4)
    assert (cluster.marked, cluster.open) == ([(OLD, state.endswith("Commit"))], set())


def test_a_decision_note_is_not_applied_to_a_later_transaction(
    driver: Callable[..., KafkaSink],
) -> None:
    cluster = left("CompleteCommit")
    cluster.open, cluster.refuses = {place(1)}, NotLeaderForPartitionError
    with pytest.raises(HangingTransaction):
        driver(cluster)
    # A transaction was under way at the fence, which aborted it: that takes an epoch more.
    cluster.known[OLD], cluster.refuses = replace(cluster.known[OLD], epoch=5), None
    with pytest.raises(RefusedStart, match="no longer knows whether it was committed"):
        driver(cluster, 3)
    assert cluster.marked == []


def test_an_id_whose_markers_arrive_late_is_not_fenced(
    driver: Callable[..., KafkaSink],
) -> None:
    cluster = Cluster({}, set(), set())
    sink = driver(cluster)
    other = "it.txn.g2.7.c"
    cluster.known = {OWN: Transaction(OWN, 12, 0, "Ongoing"), other: Transaction(other, 13, 0, "CompleteCommit")}
    looks = iter([[place(0, 13)]])

    def open_in(topic: str) -> list[OpenIn]:
        return next(looks, []) if topic == "out" else []

    cluster.open_in = open_in  # type: ignore[method-assign]
    sink.commit(8, {0: {"transactional_id": OWN, "producer_id": 12, "epoch": 0}})
    assert set(cluster.taken) == {OWN}
    assert sink.prepare_writer().retired == {OWN}


def test_an_own_id_that_was_fenced_is_not_used_again(
    driver: Callable[..., KafkaSink],
) -> None:
    cluster = Cluster({}, set(), {place(1, 13)})
    sink = driver(cluster)
    other = "it.txn.g2.7.c"
    cluster.known = {OWN: Transaction(OWN, 12, 0, "Ongoing"), other: Transaction(other, 13, 0, "CompleteCommit")}
    cluster.open = {place(0, 12), place(1, 13)}
    sink.commit(8, {0: {"transactional_id": OWN, "producer_id": 12, "epoch": 0}})
    assert cluster.marked == [(other, True)]
    assert set(cluster.taken) == {OWN, other} == sink.prepare_writer().retired


def test_a_doubtful_commit_that_hangs_is_committed_before_the_fence(
    driver: Callable[..., KafkaSink],
) -> None:
    cluster = Cluster({}, set(), {place(1, 12)})
    sink = driver(cluster)
    cluster.lists = 0
    cluster.known = {OWN: Transaction(OWN, 12, 0, "Ongoing")}
    cluster.open = {place(0, 12), place(1, 12)}
    assert sink.commit(8, {0: {"transactional_id": OWN, "producer_id": 12, "epoch": 0}}) == set()
    assert (cluster.marked, cluster.open) == ([(OWN, True)], set())
    assert cluster.known[OWN].state == "Empty"


def test_a_failed_repair_does_not_end_the_batch(driver: Callable[..., KafkaSink]) -> None:
    """The check must not be less tolerant than the batch itself."""
    cluster = Cluster({}, set(), set())
    sink = driver(cluster)
    cluster.known = {OLD: Transaction(OLD, 11, 3, "CompleteCommit")}
    cluster.open, cluster.refuses = {place(1)}, NotLeaderForPartitionError
    begins_a_batch(sink)
    assert cluster.marked == []
    cluster.refuses = None
    begins_a_batch(sink)
    assert cluster.marked == [(OLD, True)]


def test_a_check_without_an_answer_does_not_end_the_batch(driver: Callable[..., KafkaSink]) -> None:
    cluster = Cluster({}, set(), set())
    sink = driver(cluster)

    def away(topic: str) -> list[OpenIn]:
        raise NotLeaderForPartitionError(topic)

    cluster.open_in = away  # type: ignore[method-assign]
    begins_a_batch(sink)


def test_a_fence_that_fails_after_a_doubtful_commit_asks_for_a_restart(driver: Callable[..., KafkaSink]) -> None:
    """RefusedStart would be wrong: the suite does not start the pipeline again after it."""
    cluster = Cluster({}, set(), {place(1, 12)})
    sink = driver(cluster)
    cluster.known = {OWN: Transaction(OWN, 12, 0, "Ongoing")}
    cluster.open, cluster.refuses = {place(0, 12), place(1, 12)}, NotLeaderForPartitionError
    with pytest.raises(CommitUncertain, match="start again"):
        sink.commit(8, {0: {"transactional_id": OWN, "producer_id": 12, "epoch": 0}})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (53, r"TransactionalIdAuthorizationFailedError \(53\): .* --operation Write --transactional-id it.txn. "),
        (-1, "within 60 s"),
    ],
)
def test_an_uncertain_commit_names_the_error_and_whether_waiting_helps(
    driver: Callable[..., KafkaSink], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LIMIT_S", 0.05)  # nothing listens there
    cluster = Cluster({}, set(), set())
    sink = driver(cluster)
    cluster.end = lambda txns, **_: [EndTxnResult(Outcome.UNKNOWN, code, doubtful=False) for _ in txns]  # type: ignore[method-assign, assignment, misc]
    with pytest.raises(CommitUncertain, match=message):
        sink.commit(8, {0: {"transactional_id": OWN, "producer_id": 12, "epoch": 0}})


def test_markers_that_cannot_be_read_make_a_commit_uncertain(
    driver: Callable[..., KafkaSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_self: KafkaSink, stable: bool = True) -> dict[int, Any]:
        raise KafkaException(f"no answer, stable={stable}")

    cluster = Cluster({}, set(), set())
    sink = driver(cluster)
    cluster.end = lambda txns, **_: [EndTxnResult(Outcome.ELSEWHERE, 48, doubtful=False) for _ in txns]  # type: ignore[method-assign, assignment, misc]
    monkeypatch.setattr(KafkaSink, "_read_marks", unreadable)
    with pytest.raises(CommitUncertain, match="could not be read: no answer"):
        sink.commit(8, {0: {"transactional_id": OWN, "producer_id": 12, "epoch": 0}})


@pytest.mark.parametrize("metadata", ["", "by a console", "[]", '"text"'])
def test_an_offset_that_is_no_marker_of_the_sink_counts_as_overwritten(
    driver: Callable[..., KafkaSink], metadata: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster({}, set(), set())
    cluster.numbers["it.marker.0"], cluster.texts["it.marker.0"] = 0, metadata
    sink = driver(cluster)
    assert sink.marks() == {0: Mark(OVERWRITTEN, 0, None)}
    assert "consumer group it.marker.0 has offset 0, which is no marker of this sink" in caplog.text
    sink.restore_marks({0: NO_BATCH})
    assert sink.marks() == driver(cluster, 3).marks() == {0: Mark(NO_BATCH, 0, None)}


def test_a_start_fences_the_ids_of_a_broker_that_comes_back(driver: Callable[..., KafkaSink]) -> None:
    cluster = Cluster({}, set(), set())
    cluster.returning = {OLD: Transaction(OLD, 11, 3, "CompleteCommit")}
    driver(cluster)
    assert cluster.taken == [OLD]


class Late(Cluster):
    """Batch 8 of partition 0 is confirmed.

    Its marker can be read when the transaction is complete.
    """

    def completes(self) -> None:
        super().completes()
        if self.known[OLD].state == "CompleteCommit":
            self.numbers["it.marker.0"] = 8 + 1


@pytest.mark.parametrize(("finished", "newest"), [(True, 8), (False, 7)])
def test_a_start_waits_for_the_marker_of_a_finished_batch_and_spares_one_that_is_open(
    driver: Callable[..., KafkaSink], finished: bool, newest: int
) -> None:
    cluster = Late({OLD: Transaction(OLD, 11, 3, "PrepareCommit")}, set(), set())
    cluster.numbers["it.marker.0"], cluster.texts["it.marker.0"] = 7 + 1, "{}"
    prepared = {"transactional_id": OLD, "producer_id": 11, "epoch": 3}
    sink = driver(cluster, decided=[{**prepared, "batch": 8, "partition": 0, "finished": finished}])
    assert sink.marks() == {0: Mark(newest, 0, None)}
    assert cluster.taken == ([OLD] if finished else [])


def test_no_marker_is_made_under_a_decided_transaction_that_may_be_open(driver: Callable[..., KafkaSink]) -> None:
    sink = driver(Cluster({}, set(), set()))
    sink._undone = {0}
    sink.restore_marks({0: NO_BATCH})
    assert sink.marks() == {}
    sink.restore_marks({0: 7})  # the operator has found the batch in the output
    assert sink.marks() == {0: Mark(7, 0, None)}
