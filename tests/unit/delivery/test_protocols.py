"""The protocols of `oncebench.delivery.protocols` themselves, over a sink in memory.

They are killed at every point and pair of points.

Nothing of Kafka or Spark is imitated here but what the protocols rely on: a batch that is run again after a death, and
a sink whose prepared work outlives its driver. That the real sink keeps this is for the contract tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery import decisions
from oncebench.delivery import protocols as delivery
from oncebench.delivery.contract import WHOLE_BATCH, Mark, Written
from oncebench.delivery.decisions import decision
from oncebench.delivery.errors import (
    CommitRefused,
    CommitUncertain,
    DeliveryFailed,
    NondeterministicReplay,
    OlderDriver,
    PermanentFailure,
    RefusedStart,
    TransactionLost,
)
from oncebench.delivery.failpoints import POINTS
from oncebench.delivery.journal import Identity, Journal, open_journal

PARTITIONS = 2
ROWS = {0: 3, 1: 2}  # rows of the batch by partition
EVERY_ROW = Counter({(p, row): 1 for p in ROWS for row in range(ROWS[p])})


class Killed(BaseException):
    """The driver and all its tasks die here."""


@dataclass
class Store:
    """What outlives a driver: visible rows, prepared transactions, markers."""

    visible: Counter[Any] = field(default_factory=Counter)
    prepared: dict[str, tuple[int, list[Any]]] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)
    ids: int = 0


class MemorySink:
    """One driver's sink over a Store."""

    name, partitions = "memory", PARTITIONS

    def __init__(self, store: Store, keep: Collection[str]) -> None:
        self.store = store
        for name in [name for name in store.prepared if name not in keep]:
            del store.prepared[name]
        self._marks = dict(store.marks)

    def claim(self, batch: int) -> None:
        """Notes nothing, as a sink does by default."""

    def unacknowledged_writer(self) -> str:
        return "append"

    acknowledged_writer = unacknowledged_writer

    def idempotent_writer(self) -> str:
        return "marked"

    def prepare_writer(self) -> str:
        return "prepare"

    def marks(self) -> Mapping[int, Mark]:
        return self._marks

    def newest_batch(self) -> int:
        return max((mark.batch for mark in self._marks.values()), default=-1)

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
        lost = set()
        for partition, entry in prepared.items():
            if entry["id"] in self.store.prepared:
                _, rows = self.store.prepared.pop(entry["id"])
                self.store.visible.update(rows)
                self.store.marks[partition] = Mark(batch, len(rows), 0)
            elif self.store.marks.get(partition, Mark(-1, 0, 0)).batch != batch:
                lost.add(partition)
        return lost


class MemoryBatch:
    """A batch that dies when it passes one of `deaths`."""

    id = 7

    def asks_for(self, _point: str) -> bool:
        return True

    def __init__(self, store: Store, die_at: str | None, digest: int = 0) -> None:
        self.store, self.die_at, self.digest = store, die_at, digest
        self.results: list[Written] = []
        self.dropped: list[int] = []
        self.drained_only = False

    def failpoint(self, point: str) -> None:
        if point == self.die_at:
            raise Killed

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        yield

    def run(self, writer: Any, only: Collection[int] | None = None, expected: Any = None) -> list[Written]:
        for partition, (rows, first) in (expected or {}).items():
            if rows != ROWS[partition] or first not in (self.digest, None):
                raise NondeterministicReplay
        self.results = [
            Written(p, ROWS[p], self.digest, self._write(writer, p) if only is None or p in only else {}) for p in ROWS
        ]
        return self.results

    def drain(self, expected: Any = None, keep: bool = False) -> None:
        self.run(None, only=(), expected=expected)
        self.drained_only = True

    def _write(self, writer: Any, partition: int) -> dict[str, Any]:
        rows = [(partition, row) for row in range(ROWS[partition])]
        writer = getattr(writer, "writer", writer)  # of a claimed batch
        if writer == "append":
            self.store.visible.update(rows[:1])
            self.failpoint("mid-write")
            self.store.visible.update(rows[1:])
            return {}
        self.failpoint("mid-write")
        self.failpoint("before-prepare")
        if writer == "prepare":
            self.store.ids += 1
            name = f"t{self.store.ids}"
            self.store.prepared[name] = (partition, rows)
            self.failpoint("after-prepare")
            return {"id": name}
        self.failpoint("after-prepare")
        self.store.visible.update(rows)
        self.store.marks[partition] = Mark(self.id, len(rows), self.digest)
        return {}


def lives(
    protocol: Any, folder: Path, deaths: list[str | None], on_lost: str = "rewrite", between: Any = None
) -> Store:
    """Runs the batch in one life after the other until one survives.

    Returns what is in the sink.
    """
    store = Store()
    for die_at in [*deaths, None, None, None]:
        journal = open_journal(folder, Identity("s", "memory", "d", "v", PARTITIONS))
        sink = MemorySink(store, named_by(journal))
        batch = MemoryBatch(store, die_at)
        try:
            if die_at == "batch-start":
                continue
            protocol(batch, sink, journal, on_lost)
            if die_at != "after-commit":
                return store
        except (Killed, TransactionLost):
            pass
        if between is not None:
            between(store)
    raise AssertionError("the batch never came to an end")


def named_by(journal: Journal) -> set[str]:
    return {
        entry["prepared"]["id"]
        for made in journal.decisions(MemoryBatch.id)
        for entry in made["partitions"]
        if entry["prepared"]
    }


DEATHS: list[list[str | None]] = [[None], *([point] for point in POINTS), *map(list, product(POINTS, POINTS))]
EXACTLY_ONCE = [delivery.exactly_once_two_phase, delivery.exactly_once_idempotent]


@pytest.mark.parametrize("deaths", DEATHS, ids=str)
@pytest.mark.parametrize("protocol", EXACTLY_ONCE)
def test_exactly_once_shows_every_row_once_wherever_it_dies(
    protocol: Any, deaths: list[str | None], tmp_path: Path
) -> None:
    store = lives(protocol, tmp_path, deaths)
    assert store.visible == EVERY_ROW
    assert not store.prepared


@pytest.mark.parametrize("deaths", DEATHS, ids=str)
def test_at_most_once_never_shows_a_row_twice(deaths: list[str | None], tmp_path: Path) -> None:
    assert not lives(delivery.at_most_once, tmp_path, deaths).visible - EVERY_ROW


@pytest.mark.parametrize("deaths", DEATHS, ids=str)
def test_at_least_once_never_loses_a_row(deaths: list[str | None], tmp_path: Path) -> None:
    assert not EVERY_ROW - lives(delivery.at_least_once, tmp_path, deaths).visible


def test_the_weaker_guarantees_do_show_what_they_allow(tmp_path: Path) -> None:
    assert not lives(delivery.at_most_once, tmp_path / "a", ["after-decision"]).visible
    doubled = lives(delivery.at_least_once, tmp_path / "b", ["after-commit"]).visible
    assert set(doubled.values()) == {2}


def forget(store: Store) -> None:
    """The broker's time-out aborts everything that is prepared."""
    store.prepared.clear()


@pytest.mark.parametrize("deaths", [["after-decision"], ["mid-commit"], ["after-decision", "after-decision"]], ids=str)
def test_a_decided_transaction_that_timed_out_is_written_again(deaths: list[str | None], tmp_path: Path) -> None:
    store = lives(delivery.exactly_once_two_phase, tmp_path, deaths, between=forget)
    assert store.visible == EVERY_ROW


def test_drop_loses_it_as_flinks_sink_does(tmp_path: Path) -> None:
    store = lives(delivery.exactly_once_two_phase, tmp_path, ["after-decision"], on_lost="drop", between=forget)
    assert not store.visible


def test_a_loss_found_by_the_driver_itself_ends_it_and_its_replay_mends_it(tmp_path: Path) -> None:
    class Slow(MemorySink):
        def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
            forget(self.store)
            return super().commit(batch, prepared)

    store = Store()
    journal = open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))
    with pytest.raises(TransactionLost, match="start again"):
        delivery.exactly_once_two_phase(MemoryBatch(store, None), Slow(store, ()), journal, "rewrite")  # type: ignore[arg-type]
    again = open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))
    sink = MemorySink(store, named_by(again))
    delivery.exactly_once_two_phase(MemoryBatch(store, None), sink, again, "rewrite")  # type: ignore[arg-type]
    assert store.visible == EVERY_ROW


def test_the_start_after_a_late_decision_of_an_older_driver_shows_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened() -> Journal:
        return open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))

    store, older = Store(), opened()
    monkeypatch.setattr(older, "check_still_ours", lambda: None)
    prepared = MemoryBatch(store, "before-decision")
    with pytest.raises(Killed):  # it stalls there
        delivery.exactly_once_two_phase(prepared, MemorySink(store, ()), older, "rewrite")  # type: ignore[arg-type]

    class Overtaken(MemoryBatch):
        def failpoint(self, point: str) -> None:
            if point == "before-decision":
                older.decide(self.id, 0, decision(prepared.results))

    newer = opened()
    with pytest.raises(OlderDriver):
        delivery.exactly_once_two_phase(Overtaken(store, None), MemorySink(store, ()), newer, "rewrite")  # type: ignore[arg-type]
    assert store.visible == {}
    again = opened()
    sink = MemorySink(store, named_by(again))
    delivery.exactly_once_two_phase(MemoryBatch(store, None), sink, again, "rewrite")  # type: ignore[arg-type]
    assert (store.visible, store.prepared) == (EVERY_ROW, {})


@pytest.mark.parametrize("lost", [False, True], ids=["all committed", "all lost"])
def test_a_replay_that_makes_other_rows_writes_nothing_and_raises(tmp_path: Path, lost: bool) -> None:
    store = Store()
    journal = open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))
    with pytest.raises(Killed):
        first = MemoryBatch(store, "after-decision", digest=1)
        delivery.exactly_once_two_phase(first, MemorySink(store, ()), journal, "rewrite")  # type: ignore[arg-type]
    if lost:
        forget(store)
    again = open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))
    sink, replay = MemorySink(store, named_by(again)), MemoryBatch(store, None, digest=2)
    with pytest.raises(NondeterministicReplay):
        delivery.exactly_once_two_phase(replay, sink, again, "rewrite")  # type: ignore[arg-type]
    assert store.visible == ({} if lost else EVERY_ROW)
    assert (store.prepared, store.ids) == ({}, PARTITIONS)
    assert len(again.decisions(MemoryBatch.id)) == 1


def test_a_lost_partition_is_written_again_only_as_its_first_run_wrote_it(tmp_path: Path) -> None:
    """The other partition is committed.

    So rows that moved from one partition to the other would be lost or doubled.
    """
    store = Store()
    journal = open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))
    with pytest.raises(Killed):
        first = MemoryBatch(store, "after-decision", digest=1)
        delivery.exactly_once_two_phase(first, MemorySink(store, ()), journal, "rewrite")  # type: ignore[arg-type]
    gone = next(name for name, (partition, _) in store.prepared.items() if partition == 1)
    del store.prepared[gone]
    for digest, raised in ((2, pytest.raises(NondeterministicReplay)), (1, nullcontext())):
        again = open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))
        sink, replay = MemorySink(store, named_by(again)), MemoryBatch(store, None, digest=digest)
        with raised:
            delivery.exactly_once_two_phase(replay, sink, again, "rewrite")  # type: ignore[arg-type]
        assert store.visible == (EVERY_ROW if digest == 1 else Counter(dict.fromkeys([(0, 0), (0, 1), (0, 2)], 1)))
    assert [each.partition for each in replay.results if each.prepared] == [1]


@pytest.mark.parametrize("died_at", ["mid-commit", "after-commit"])
def test_a_batch_that_the_sink_holds_and_an_older_journal_does_not_know_is_refused_and_not_doubled(
    tmp_path: Path, died_at: str
) -> None:
    store = Store()
    journal = open_journal(tmp_path / "now", Identity("s", "memory", "d", "v", PARTITIONS))
    with suppress(Killed):
        delivery.exactly_once_two_phase(MemoryBatch(store, died_at), MemorySink(store, ()), journal, "rewrite")  # type: ignore[arg-type]
    older = open_journal(tmp_path / "put back", Identity("s", "memory", "d", "v", PARTITIONS))
    sink, shown = MemorySink(store, ()), store.visible.copy()
    with pytest.raises(RefusedStart, match=r"batch 7 is not decided in .*put back.*, an older or another"):
        delivery.exactly_once_two_phase(MemoryBatch(store, None), sink, older, "rewrite")  # type: ignore[arg-type]
    assert store.visible == shown
    assert shown


@pytest.mark.parametrize(("partitions", "reached"), [(1, True), (2, False)])
def test_a_batch_with_nothing_left_to_commit_is_not_in_the_middle_of_its_commit(partitions: int, reached: bool) -> None:
    store = Store(prepared={"t1": (0, [(0, 0)])})
    sink, batch = MemorySink(store, ["t1"]), MemoryBatch(store, "mid-commit")
    sink.partitions = partitions
    with pytest.raises(Killed) if reached else nullcontext():
        assert decisions.commit(batch, sink, {0: {"id": "t1"}}) == set()  # type: ignore[arg-type]
    assert store.visible == {(0, 0): 1}


@pytest.mark.parametrize(("failed", "raised"), [(DeliveryFailed, CommitUncertain), (PermanentFailure, CommitRefused)])
def test_a_decided_batch_that_fails_says_that_its_replay_finishes_it(
    monkeypatch: pytest.MonkeyPatch, failed: type[Exception], raised: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise failed("another server answers.")

    monkeypatch.setattr(MemorySink, "commit", fail)
    batch = MemoryBatch(Store(), None)
    with pytest.raises(raised, match=r"^batch 7 is decided, .*: another server answers\. The replay of a new start "):
        decisions.commit(batch, MemorySink(Store(), ()), {0: {"id": "t1"}})  # type: ignore[arg-type]


def test_at_most_once_drains_a_batch_whose_claim_only_the_sink_has(tmp_path: Path) -> None:
    store = Store(marks={WHOLE_BATCH: Mark(MemoryBatch.id, 0, None)})
    older = open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))
    batch = MemoryBatch(store, None)
    delivery.at_most_once(batch, MemorySink(store, ()), older, "rewrite")  # type: ignore[arg-type]
    assert (batch.drained_only, store.visible) == (True, {})


@pytest.mark.parametrize("protocol", [delivery.at_most_once, delivery.exactly_once_idempotent])
def test_a_batch_before_the_newest_of_the_sink_is_refused(tmp_path: Path, protocol: Any) -> None:
    store = Store(marks={WHOLE_BATCH: Mark(MemoryBatch.id + 1, 0, None)})
    journal = open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))
    with pytest.raises(RefusedStart, match=r"this is batch 7, and the sink holds batch 8: .*another checkpoint"):
        protocol(MemoryBatch(store, None), MemorySink(store, ()), journal, "rewrite")
    assert store.visible == {}


def test_a_replay_of_a_decided_batch_drains_it_and_decides_nothing_again(tmp_path: Path) -> None:
    store = lives(delivery.exactly_once_two_phase, tmp_path, ["after-commit", "after-commit"])
    journal = open_journal(tmp_path, Identity("s", "memory", "d", "v", PARTITIONS))
    assert len(journal.decisions(MemoryBatch.id)) == 1
    assert store.ids == PARTITIONS  # each partition was prepared once, in the first life
