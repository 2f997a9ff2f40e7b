"""Folders that a power cut does not take back, with all that was forced inside them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from oncebench.delivery.contract import EXACTLY_ONCE, Support
from oncebench.delivery.durable import make_folder, refuse_wrong_place
from oncebench.delivery.errors import DeliveryFailed
from oncebench.delivery.journal import Identity, open_journal
from oncebench.sinks.files.formats import JSON_LINES
from oncebench.sinks.files.sink import FileSink


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Which folders were made and forced, in order."""
    done: list[tuple[str, Path]] = []
    fsync, mkdir = os.fsync, os.mkdir

    def noted_fsync(handle: int) -> None:
        fsync(handle)
        done.append(("forced", Path(f"/proc/self/fd/{handle}").readlink()))

    def noted_mkdir(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        done.append(("made", Path(path)))

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "mkdir", noted_mkdir)
    return done


def test_each_folder_that_is_made_is_forced_before_the_next_one_is_made_in_it(
    tmp_path: Path, steps: list[tuple[str, Path]]
) -> None:
    make_folder(tmp_path / "a" / "b")
    a = tmp_path / "a"
    assert steps == [("forced", tmp_path.parent), ("made", a), ("forced", tmp_path), ("made", a / "b"), ("forced", a)]


def test_a_folder_that_is_there_may_be_there_since_an_instant_and_is_forced(
    tmp_path: Path, steps: list[tuple[str, Path]]
) -> None:
    """A driver that was killed between the two steps has made it, and forced nothing."""
    make_folder(tmp_path)
    assert steps == [("forced", tmp_path.parent)]


def test_a_folder_that_others_made_need_not_stand_in_one_that_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    make_folder(tmp_path)
    with pytest.raises(PermissionError):
        make_folder(tmp_path / "new")


def test_a_journal_that_is_new_is_forced_to_the_disk_with_the_checkpoint_that_it_stands_in(
    tmp_path: Path, steps: list[tuple[str, Path]]
) -> None:
    """Else a power cut takes the decisions away with their folder.

    It leaves what the decisions have shown.
    """
    open_journal(tmp_path / "checkpoint", Identity("s", "files-jsonl", "exactly-once", "two-phase", 2))
    assert {("forced", tmp_path), ("forced", tmp_path / "checkpoint")} <= set(steps)


def test_the_folder_of_files_is_forced_to_the_disk_with_all_that_were_made_above_it(
    tmp_path: Path, steps: list[tuple[str, Path]]
) -> None:
    FileSink(JSON_LINES, str(tmp_path / "new" / "output"), "s", 2).start(Support(EXACTLY_ONCE, "two-phase", ""), 1, [])
    assert {("forced", tmp_path), ("forced", tmp_path / "new"), ("forced", tmp_path / "new" / "output")} <= set(steps)


def test_a_failed_disk_is_named_and_a_later_start_may_pass(tmp_path: Path) -> None:
    with (
        pytest.raises(
            DeliveryFailed, match=r"(?s)checkpoint .* cannot be used \(Input/output error: .*dmesg.* again\."
        ),
        refuse_wrong_place("checkpoint", tmp_path),
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO))  # as fsync does: without a path
