"""A cluster for tests of the Kafka sink's start and commit: coordinators, partitions and offsets of groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncebench.sinks.kafka import sink as kafka
from oncebench.sinks.kafka.coordinator import EndTxnResult, Outcome, Transaction
from oncebench.sinks.kafka.leaders import OpenIn
from oncebench.sinks.kafka.markers import Noted
from oncebench.sinks.kafka.sink import SUPPORTS, KafkaSink

TWO_PHASE = next(each for each in SUPPORTS if each.variant == "two-phase")
PREPARED = {"PrepareCommit": "CompleteCommit", "PrepareAbort": "CompleteAbort"}
OLD, OWN = "it.txn.g1.7.a", "it.txn.g2.7.b"


@dataclass
class Cluster:
    """Coordinators and partitions.

    A place in `forgets` never gets a marker; other places get it at the end. Offsets of groups are in it too. What is
    prepared is complete when it is fenced, or listed for the third time.
    """

    known: dict[str, Transaction]
    open: set[OpenIn]
    forgets: set[OpenIn]
    refuses: type[Exception] | None = None

    def __post_init__(self) -> None:
        self.returning: dict[str, Transaction] = {}  # of a broker that was away: a complete list waits for it
        self.numbers: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.marked: list[tuple[str, bool]] = []
        self.taken: list[str] = []
        self.ended: list[str] = []
        self.lists = 0
        self.leaders = self

    def completes(self) -> None:
        for name, txn in self.known.items():
            if txn.state in PREPARED:
                self.known[name] = replace(txn, state=PREPARED[txn.state])
                self.open -= {each for each in self.open if each.producer_id == txn.producer_id} - self.forgets

    def refuse_hidden(self, prefix: str) -> None:
        """This user may see every id."""

    def listed(
        self,
        prefix: str,
        complete: bool = False,
        producer_id_filters: Collection[int] = (),
        state_filters: Collection[str] = (),
    ) -> list[Transaction]:
        if complete:
            self.known |= self.returning
        found = [
            replace(txn, epoch=-1)
            for name, txn in self.known.items()
            if name.startswith(prefix)
            and (not producer_id_filters or txn.producer_id in producer_id_filters)
            and (not state_filters or txn.state in state_filters)
        ]
        self.lists += 1
        if self.lists % 3 == 0:
            self.completes()
        return found

    def describe(self, names: Iterable[str]) -> dict[str, Transaction]:
        return {name: self.known[name] for name in names}

    def open_in(self, topic: str) -> list[OpenIn]:
        return sorted(place for place in self.open if place.topic == topic)

    def fence_once(self, names: Iterable[str], _timeout_ms: int) -> dict[str, int]:
        answers = {}
        for name in names:
            txn = self.known[name]
            answers[name] = 51 if txn.state in (*PREPARED, "Ongoing") else 0
            if txn.state == "Ongoing":
                self.known[name] = replace(txn, state="PrepareAbort", epoch=txn.epoch + 1)
            elif txn.state not in PREPARED:
                self.known[name] = replace(txn, state="Empty", epoch=txn.epoch + 1)
        return answers

    def fence(self, names: list[str], timeout_ms: int, _limit_s: float) -> None:
        self.taken += names
        while any(self.fence_once(names[:1], timeout_ms).values()):
            self.completes()
        if names[1:]:
            self.fence(names[1:], timeout_ms, _limit_s)

    def write_transaction_marker(self, place: OpenIn, _epoch: int, commit: bool) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.open.remove(place)
        (txn,) = (each for each in self.known.values() if each.producer_id == place.producer_id)
        self.marked.append((txn.transactional_id, commit))

    def end(self, transactions: list[Transaction], commit: bool, limit_s: float, **_more: Any) -> list[EndTxnResult]:
        """Each is committed, once its first answer got lost."""
        assert commit, limit_s
        for txn in transactions:
            self.known[txn.transactional_id] = replace(txn, state="PrepareCommit")
            self.ended.append(txn.transactional_id)
        return [EndTxnResult(Outcome.DONE, 0, doubtful=True) for _ in transactions]

    def read(self, group: str, _stable: bool = True) -> Noted | None:
        return Noted(self.numbers[group], self.texts.get(group, "")) if group in self.numbers else None

    def write(self, group: str, number: int, metadata: str = "", stable: bool = True) -> None:
        del stable
        self.numbers[group], self.texts[group] = number, metadata


def place(partition: int, producer_id: int = 11) -> OpenIn:
    return OpenIn("out", partition, 205, producer_id)


def started(
    monkeypatch: pytest.MonkeyPatch,
    cluster: Cluster,
    generation: int = 2,
    decided: Sequence[Mapping[str, Any]] = (),
    partitions: int = 1,
) -> KafkaSink:
    """A sink of this cluster, started under two-phase."""
    monkeypatch.setattr(kafka, "Coordinator", SimpleNamespace(of=lambda _client: cluster))
    monkeypatch.setattr(KafkaSink, "_check_topics", lambda _self, _guarantee: None)
    monkeypatch.setattr(KafkaSink, "_check_timeout", lambda _self: None)
    sink = KafkaSink("out", "it", partitions, {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}, 60_000, "")
    sink._offsets = cast("Any", cluster)
    sink.start(TWO_PHASE, generation, decided)
    return sink
