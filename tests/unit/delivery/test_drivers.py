"""Two jobs with copies of one checkpoint: which of them may take the sink."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from oncebench.delivery.contract import Holder
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import KEEP_BATCHES, Identity, Journal, open_journal
from oncebench.delivery.starts.drivers import Drivers
from oncebench.delivery.starts.gaps import Gaps

IDENTITY = Identity("s", "files-jsonl", "exactly-once", "two-phase", 2)


def start(checkpoint: Path) -> Journal:
    return open_journal(checkpoint, IDENTITY)


def follow(journal: Journal, holder: Holder | None, newest: int = 3, accepted: str | None = None) -> Holder:
    """What is in the sink after the start has written its first batch."""
    Drivers(journal).follow(holder, newest, "s", Gaps(journal.folder, accepted))
    return wrote(journal.driver, journal.generation)


def wrote(driver: str, generation: int, batch: int = 3) -> Holder:
    return Holder(frozenset({driver} - {""}), generation, batch)


def copied(checkpoint: Path, name: str) -> Path:
    return Path(shutil.copytree(checkpoint, checkpoint.with_name(name)))


def test_each_start_of_a_checkpoint_follows_the_one_before(tmp_path: Path) -> None:
    holder: Holder | None = None
    for _ in range(3):
        holder = follow(start(tmp_path), holder)


def test_of_two_copies_the_second_is_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "first"
    holder = follow(start(checkpoint), None)
    copy = copied(checkpoint, "copy")
    first = follow(start(checkpoint), holder)
    with pytest.raises(
        RefusedStart, match=r"is a copy, or an older state.*not disturbed.*--accept-gap: output/driver:"
    ):
        follow(start(copy), first)
    follow(start(checkpoint), first)


def test_a_copy_of_a_running_jobs_checkpoint_takes_over_with_a_newer_generation(tmp_path: Path) -> None:
    checkpoint = tmp_path / "first"
    running = follow(start(checkpoint), None)
    copy = start(copied(checkpoint, "copy"))
    taken = follow(copy, wrote(*running.writers, 7))
    assert taken.generation == copy.generation == 8
    with pytest.raises(RefusedStart, match="is a copy"):
        follow(start(checkpoint), taken)


def test_a_copy_that_lacks_a_batch_of_the_sink_is_refused_and_takes_nothing(tmp_path: Path) -> None:
    journal = start(tmp_path)
    holder = wrote(journal.driver, 7, 4)
    with pytest.raises(RefusedStart, match=r"holds batch 4 .* has no batch after 3"):
        follow(journal, holder, newest=3)
    assert journal.generation == 1


def test_an_accepted_copy_goes_on(tmp_path: Path) -> None:
    other = wrote("f" * 32, 9)
    follow(start(tmp_path), None)
    with pytest.raises(RefusedStart) as refused:
        follow(start(tmp_path), other)
    text = str(refused.value).rsplit(": ", 1)[1]
    accepted = follow(start(tmp_path), other, accepted=text)
    assert accepted.generation == 10
    follow(start(tmp_path), accepted)


def test_a_copy_that_never_wrote_stops_no_start_and_the_next_one_is_newer(tmp_path: Path) -> None:
    checkpoint = tmp_path / "first"
    written = follow(start(checkpoint), None)
    copied(checkpoint, "damaged")  # its job took the sink, and died before it wrote
    again = start(checkpoint)
    follow(again, Holder(written.writers, 5, 3))
    assert again.generation == 6


def test_a_new_checkpoint_takes_a_sink_id_under_which_nothing_was_written(tmp_path: Path) -> None:
    follow(start(tmp_path), Holder(frozenset(), 2, -1), newest=-1)
    with pytest.raises(RefusedStart, match="holds batch 0"):
        follow(start(tmp_path), wrote("f" * 32, 2, 0), newest=-1)


def test_an_older_versions_driver_without_a_name_is_followed(tmp_path: Path) -> None:
    follow(start(tmp_path), wrote("", 5))


def test_a_hundred_starts_that_never_reached_the_sink_forget_no_driver(tmp_path: Path) -> None:
    holder = follow(start(tmp_path), None)
    for _ in range(KEEP_BATCHES + 2):
        start(tmp_path)
    assert len(list((tmp_path / "journal").glob("generation-*"))) <= KEEP_BATCHES + 1
    follow(start(tmp_path), holder)


def test_a_start_that_died_before_or_after_the_sink_noted_it_is_repeated(tmp_path: Path) -> None:
    holder = follow(start(tmp_path), None)
    noted = follow(start(tmp_path), holder)
    follow(start(tmp_path), holder)  # the sink has not noted the second start
    follow(start(tmp_path), noted)  # it has
