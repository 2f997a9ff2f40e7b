"""Every file below a folder counts once from the mark on, also after its deletion."""

from __future__ import annotations

from pathlib import Path

from oncebench.observe.bytes_written import SCAN_INTERVAL_S, BytesWritten


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def put(folder: Path, name: str, size: int) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_a_missing_folder_holds_nothing(tmp_path: Path) -> None:
    assert BytesWritten(tmp_path / "later").total() == {"bytes": 0, "files": 0}


def test_files_in_all_subfolders_count_from_the_mark_on(tmp_path: Path) -> None:
    put(tmp_path, "offsets/0", 100)
    written = BytesWritten(tmp_path)
    written.mark()
    put(tmp_path, "offsets/1", 10)
    put(tmp_path, "state/0/1.changelog", 20)
    put(tmp_path, "offsets/1", 15)  # has grown
    assert written.total() == {"bytes": 35, "files": 2}


def test_deleted_files_count_and_unfinished_files_do_not(tmp_path: Path) -> None:
    clock = Clock()
    written = BytesWritten(tmp_path, clock)
    written.mark()
    gone = put(tmp_path, "offsets/1", 10)
    put(tmp_path, "offsets/.2.1b2c.tmp", 50)
    put(tmp_path, "state/.1.changelog.1b2c.TID2.tmp.crc", 50)
    written.scan_if_due()
    gone.unlink()
    assert written.total() == {"bytes": 10, "files": 1}


def test_scans_respect_the_interval(tmp_path: Path) -> None:
    clock = Clock()
    written = BytesWritten(tmp_path, clock)
    written.scan_if_due()
    first = put(tmp_path, "a", 1)
    clock.now = SCAN_INTERVAL_S / 2
    written.scan_if_due()  # too soon
    first.unlink()
    assert written.total()["files"] == 0
    clock.now = SCAN_INTERVAL_S
    second = put(tmp_path, "b", 1)
    written.scan_if_due()
    second.unlink()
    assert written.total()["files"] == 1
