"""Waiting for new files in a folder: reported at once, and nothing else is reported."""

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

LONG_S = 60.0  # far longer than a test with a report takes
Watch = Callable[[Path], FolderChanges]


@pytest.fixture
def watch() -> Iterator[Watch]:
    with ExitStack() as stack:

        def of(folder: Path) -> FolderChanges:
            changes = changes_in(folder)
            assert changes is not None, "there is inotify on Linux"
            stack.callback(changes.close)
            changes.wait(0)  # the folder exists from the beginning
            return changes

        yield of


def publish(folder: Path, name: str) -> None:
    (folder / f".{name}").write_text("row")
    (folder / f".{name}").rename(folder / name)


def lasts_s(changes: FolderChanges, at_most_s: float) -> float:
    began = time.monotonic()
    changes.wait(at_most_s)
    return time.monotonic() - began


def test_a_wait_ends_when_a_file_becomes_visible(tmp_path: Path, watch: Watch) -> None:
    changes = watch(tmp_path)
    thread = threading.Timer(0.2, publish, (tmp_path, "a"))
    began = time.monotonic()
    thread.start()
    changes.wait(LONG_S)
    assert 0.2 <= time.monotonic() - began < LONG_S / 2
    thread.join()


def test_a_file_between_two_waits_ends_the_second(tmp_path: Path, watch: Watch) -> None:
    changes = watch(tmp_path)
    publish(tmp_path, "a")
    assert lasts_s(changes, LONG_S) < LONG_S / 2


def test_a_wait_without_changes_takes_its_time(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "below").mkdir()
    changes = watch(tmp_path)
    (tmp_path / "below" / "hidden").write_text("row")
    assert lasts_s(changes, 0.1) >= 0.1


def test_an_empty_open_file_is_not_reported(tmp_path: Path, watch: Watch) -> None:
    changes = watch(tmp_path)
    with (tmp_path / "a").open("w") as file:
        assert lasts_s(changes, 0.1) >= 0.1
        file.write("row")
    assert lasts_s(changes, LONG_S) < LONG_S / 2


def test_without_watches_a_wait_is_as_short_as_a_poll(tmp_path: Path) -> None:
    class Full:
        def add_watch(self, *_: object) -> None:
            raise OSError(errno.ENOSPC, "no watches left")

    assert lasts_s(FolderChanges(Full(), (tmp_path,)), LONG_S) < LONG_S / 2


def test_a_new_folder_ends_the_wait_and_is_watched(tmp_path: Path, watch: Watch) -> None:
    folder = tmp_path / "later"
    changes = watch(folder)
    folder.mkdir()
    assert lasts_s(changes, LONG_S) < LONG_S / 2
    publish(folder, "a")
    assert lasts_s(changes, LONG_S) < LONG_S / 2


def test_a_reader_with_reports_rarely_polls_without_changes(tmp_path: Path, watch: Watch) -> None:
    looks = 0

    def fresh() -> Rows:
        nonlocal looks
        looks += 1
        return Rows()

    Snapshots(fresh, changes=watch(tmp_path)).poll(0.5)
    assert looks <= 0.5 / reading.FALLBACK_POLL_S + 2  # the first, and the one at the end


def test_a_reader_polls_at_once_after_a_report(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FALLBACK_POLL_S", LONG_S)
    some = Rows([0], [0], [0], [None], [None], [()])
    reader = Snapshots(lambda: some if (tmp_path / "a").exists() else Rows(), changes=watch(tmp_path))
    thread = threading.Timer(0.2, publish, (tmp_path, "a"))
    thread.start()
    began = time.monotonic()
    assert reader.poll(LONG_S) is some
    assert time.monotonic() - began < LONG_S / 2
    thread.join()


def test_a_reader_closes_its_reports(tmp_path: Path, watch: Watch) -> None:
    changes = watch(tmp_path)
    Snapshots(Rows, changes=changes).close()
    with pytest.raises(ValueError, match="closed"):
        changes.wait(0)
