"""Who waits for changes in a folder hears of them at once, and of none that he need not look at."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncebench.sinks import reader as reading
from oncebench.sinks.folder_events import FolderChanges, changes_in
from oncebench.sinks.reader import Rows, Snapshots

LONG_S = 60.0  # by far more than a test takes that is told
Told = Callable[[Path], FolderChanges]


@pytest.fixture
def told() -> Iterator[Told]:
    with ExitStack() as stack:

        def of(folder: Path) -> FolderChanges:
            changes = changes_in(folder)
            assert changes is not None, "there is inotify on Linux"
            stack.callback(changes.close)
            changes.wait(0)  # of a folder that is there from the beginning
            return changes

        yield of


def shown(folder: Path, name: str) -> None:
    (folder / f".{name}").write_text("row")
    (folder / f".{name}").rename(folder / name)


def lasts_s(changes: FolderChanges, at_most_s: float) -> float:
    began = time.monotonic()
    changes.wait(at_most_s)
    return time.monotonic() - began


def test_a_wait_ends_with_a_file_that_is_shown_meanwhile(tmp_path: Path, told: Told) -> None:
    changes = told(tmp_path)
    thread = threading.Timer(0.2, shown, (tmp_path, "a"))
    thread.start()
    assert 0.1 < lasts_s(changes, LONG_S) < LONG_S / 2
    thread.join()


def test_what_was_shown_between_two_waits_ends_the_second(tmp_path: Path, told: Told) -> None:
    changes = told(tmp_path)
    shown(tmp_path, "a")
    assert lasts_s(changes, LONG_S) < LONG_S / 2


def test_a_wait_in_which_nothing_changes_takes_its_time(tmp_path: Path, told: Told) -> None:
    (tmp_path / "below").mkdir()
    changes = told(tmp_path)
    (tmp_path / "below" / "hidden").write_text("row")
    assert lasts_s(changes, 0.1) >= 0.1


def test_a_file_that_is_made_and_still_empty_is_not_told(tmp_path: Path, told: Told) -> None:
    changes = told(tmp_path)
    with (tmp_path / "a").open("w") as file:
        assert lasts_s(changes, 0.1) >= 0.1
        file.write("row")
    assert lasts_s(changes, LONG_S) < LONG_S / 2


def test_where_no_watches_are_left_a_wait_is_as_short_as_that_of_a_reader_that_nobody_tells(tmp_path: Path) -> None:
    class Full:
        def add_watch(self, *_: object) -> None:
            raise OSError(errno.ENOSPC, "no watches left")

    assert lasts_s(FolderChanges(Full(), (tmp_path,)), LONG_S) < LONG_S / 2


def test_a_folder_that_comes_later_may_hold_something_and_is_then_watched(tmp_path: Path, told: Told) -> None:
    folder = tmp_path / "later"
    changes = told(folder)
    folder.mkdir()
    assert lasts_s(changes, LONG_S) < LONG_S / 2
    shown(folder, "a")
    assert lasts_s(changes, LONG_S) < LONG_S / 2


def test_a_reader_that_is_told_of_changes_does_not_look_while_there_are_none(tmp_path: Path, told: Told) -> None:
    looks = 0

    def fresh() -> Rows:
        nonlocal looks
        looks += 1
        return Rows()

    Snapshots(fresh, changes=told(tmp_path)).poll(0.5)
    assert looks <= 0.5 / reading.FALLBACK_POLL_S + 2  # the first, and the one at the end


def test_a_reader_looks_at_once_when_it_is_told(tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FALLBACK_POLL_S", LONG_S)
    some = Rows([0], [0], [0], [None], [None], [()])
    reader = Snapshots(lambda: some if (tmp_path / "a").exists() else Rows(), changes=told(tmp_path))
    thread = threading.Timer(0.2, shown, (tmp_path, "a"))
    thread.start()
    began = time.monotonic()
    assert reader.poll(LONG_S) is some
    assert time.monotonic() - began < LONG_S / 2
    thread.join()


def test_a_reader_gives_back_what_tells_it(tmp_path: Path, told: Told) -> None:
    changes = told(tmp_path)
    Snapshots(Rows, changes=changes).close()
    with pytest.raises(ValueError, match="closed"):
        changes.wait(0)
