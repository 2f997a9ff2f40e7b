"""A folder of the cache is complete or absent, and killed runs leave nothing behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncebench.downloads.made_once import made_once, made_or_failed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ONCEBENCH_CACHE", str(tmp_path))
    yield tmp_path / "kind" / "one"


def writer(text: str) -> Callable[[Path], object]:
    return lambda made: (made / "file").write_text(text)


def test_a_folder_is_made_once(folder: Path) -> None:
    for text in ("first", "second"):
        made_once(folder, "kind", writer(text), Path.is_dir)
    assert (folder / "file").read_text() == "first"
    assert list(folder.parent.iterdir()) == [folder]


def test_a_failure_leaves_no_folder(folder: Path) -> None:
    def fails(made: Path) -> None:
        (made / "half").touch()
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        made_once(folder, "kind", fails, Path.is_dir)
    assert list(folder.parent.iterdir()) == []


def test_the_rest_of_a_killed_run_is_removed(folder: Path) -> None:
    (folder.parent / ".preparing-killed" / "made").mkdir(parents=True)
    made_once(folder, "kind", lambda made: (made / "file").touch(), Path.is_dir)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_rejected_folder_is_replaced(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "log of a failed attempt").touch()
    made_once(folder, "kind", lambda made: (made / "file").touch(), lambda each: (each / "file").is_file())
    assert [path.name for path in folder.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")
def test_the_content_is_on_the_disk_before_the_folder_has_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink()))

    def make(made: Path) -> None:
        (made / "below").mkdir()
        (made / "below" / "file").write_text("x")
        (made / "link").symlink_to("nowhere")

    made_once(folder, "kind", make, Path.is_dir)
    (made,) = {path.parent for path in synced if path.name == "below"}
    assert {path.relative_to(made) for path in synced} == {Path(), Path("below"), Path("below/file")}
    assert made.parent.name.startswith(".preparing-")


def test_a_file_system_that_cannot_sync_a_folder_is_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_handle: int) -> None:
        raise OSError(errno.EINVAL, "invalid argument")

    monkeypatch.setattr(os, "fsync", refuses)
    made_once(folder, "kind", lambda made: (made / "file").touch(), Path.is_dir)
    assert folder.is_dir()


def test_a_failed_attempt_is_repeated_a_day_later(folder: Path) -> None:
    assert not made_or_failed(folder, "archive")
    folder.mkdir(parents=True)
    assert made_or_failed(folder, "archive")
    os.utime(folder, (0, 0))
    assert not made_or_failed(folder, "archive")
    (folder / "archive").touch()
    os.utime(folder, (0, 0))
    assert not made_or_failed(folder, "archive"), "a power failure leaves empty files"
    (folder / "archive").write_text("x")
    os.utime(folder, (0, 0))
    assert made_or_failed(folder, "archive")
