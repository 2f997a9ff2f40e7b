"""The batches of one driver: which numbers it delivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from oncebench.delivery.batch import Batch
from oncebench.delivery.contract import Sink
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, OlderDriver, PipelineError, WriterStartedAgain
from oncebench.delivery.journal import Identity, Journal, open_journal
from oncebench.delivery.quarantine import Quarantine
from oncebench.jobs.batches import Batches

ROWS = cast(Any, None)
JOB = Identity("s", "sqlite", "exactly-once", "idempotent", 2)


class Written:
    """A protocol that writes down its batches, and fails in one of them.

    It fails after a claim if it claims.
    """

    def __init__(self, fails_in: int = -1, kind: type[PipelineError] = DeliveryFailed, claims: bool = False) -> None:
        self.fails_in, self.kind, self.claims, self.batches = fails_in, kind, claims, list[int]()

    def __call__(self, batch: Batch, _sink: Sink, journal: Journal, _on_lost: str) -> None:
        self.batches.append(batch.id)
        if self.claims:
            journal.claim(batch.id)
        if batch.id == self.fails_in:
            raise self.kind("partition 1 is not written")


def batches(protocol: Written, checkpoint: Path) -> Batches:
    return Batches(protocol, Sink(), open_journal(checkpoint, JOB), 2, Quarantine("", "", {}))


def test_a_driver_begins_with_any_batch_and_goes_on(tmp_path: Path) -> None:
    protocol = Written()
    deliver = batches(protocol, tmp_path)
    for number in (5, 6, 8):  # the first one may be a replay
        deliver(ROWS, number)
    assert protocol.batches == [5, 6, 8]


@pytest.mark.parametrize("again", [5, 4])
def test_a_batch_that_this_driver_has_begun_is_not_run_again(tmp_path: Path, again: int) -> None:
    """Spark replays a batch only in a new start of the query.

    The sink's markers are those of `deliver`.
    """
    protocol = Written(fails_in=5)
    deliver = batches(protocol, tmp_path)
    with pytest.raises(DeliveryFailed):
        deliver(ROWS, 5)
    for _ in range(2):
        with pytest.raises(WriterStartedAgain, match=r"has begun batch 5 already.*Call deliver\(\) again"):
            deliver(ROWS, again)
    assert protocol.batches == [5]


def test_a_newer_driver_is_named_first(tmp_path: Path) -> None:
    deliver = batches(Written(), tmp_path)
    deliver(ROWS, 5)
    batches(Written(), tmp_path)
    with pytest.raises(AnotherDriver):
        deliver(ROWS, 5)


@pytest.mark.parametrize(
    ("fails_in", "claims", "kind"),
    [(5, False, OlderDriver), (6, False, AnotherDriver), (5, True, AnotherDriver)],
    ids=["first batch", "a later one", "claimed"],
)
def test_an_older_driver_can_only_have_finished_the_first_batch_without_a_claim(
    tmp_path: Path, fails_in: int, claims: bool, kind: type[PipelineError]
) -> None:
    """In any other batch, the other driver runs on a copy of the checkpoint."""
    deliver = batches(Written(fails_in, OlderDriver, claims), tmp_path)
    with pytest.raises(PipelineError, match=r"partition 1 is not written|perhaps with a copy of") as ended:
        for number in (5, 6):
            deliver(ROWS, number)
    assert type(ended.value) is kind


def test_a_newer_driver_is_never_taken_for_an_older_one(tmp_path: Path) -> None:
    class Overtaken(Written):
        def __call__(self, *given: Any) -> None:
            batches(Written(), tmp_path)
            super().__call__(*given)

    with pytest.raises(AnotherDriver, match="generation-00000002"):
        batches(Overtaken(5, OlderDriver), tmp_path)(ROWS, 5)


@pytest.mark.parametrize("kind", [DeliveryFailed, ValueError])
def test_a_batch_that_a_newer_driver_has_fenced_ends_by_it(tmp_path: Path, kind: type[Exception]) -> None:
    """A restart of this driver would fence the newer one in turn, for ever."""

    class Fenced(Written):
        def __call__(self, *_given: Any) -> None:
            batches(Written(), tmp_path)
            raise kind("the producer is fenced")

    with pytest.raises(AnotherDriver, match="generation-00000002"):
        batches(Fenced(), tmp_path)(ROWS, 5)


def test_a_failed_disk_under_the_journal_does_not_hide_why_a_batch_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnAFailedDisk(Written):
        def __call__(self, *given: Any) -> None:
            monkeypatch.setattr(Journal, "check_still_ours", lambda _: (_ for _ in ()).throw(OSError(5, "failed")))
            super().__call__(*given)

    with pytest.raises(DeliveryFailed, match="partition 1 is not written"):
        batches(OnAFailedDisk(5), tmp_path)(ROWS, 5)
