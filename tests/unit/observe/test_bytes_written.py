"""What is written below a folder counts once, also when it is gone later, and from the mark on."""

from __future__ import annotations

from pathlib import Path

from oncebench.observe.bytes_written import LOOK_S, Written


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def put(folder: Path, name: str, size: int) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    assert Written(tmp_path / "later").total() == {"bytes": 0, "files": 0}


def test_only_what_came_after_the_mark_counts_and_files_below_count_too(tmp_path: Path) -> None:
    put(tmp_path, "offsets/0", 100)
    written = Written(tmp_path)
    written.mark()
    put(tmp_path, "offsets/1", 10)
    put(tmp_path, "state/0/1.changelog", 20)
    put(tmp_path, "offsets/1", 15)  # has grown
    assert written.total() == {"bytes": 35, "files": 2}


def test_what_was_seen_counts_although_it_is_gone_and_what_is_not_finished_does_not(tmp_path: Path) -> None:
    clock = Clock()
    written = Written(tmp_path, clock)
    written.mark()
    gone = put(tmp_path, "offsets/1", 10)
    put(tmp_path, "offsets/.2.1b2c.tmp", 50)
    put(tmp_path, "state/.1.changelog.1b2c.TID2.tmp.crc", 50)
    written.look()
    gone.unlink()
    assert written.total() == {"bytes": 10, "files": 1}


def test_looks_come_at_most_so_often(tmp_path: Path) -> None:
    clock = Clock()
    written = Written(tmp_path, clock)
    written.look()
    first = put(tmp_path, "a", 1)
    clock.now = LOOK_S / 2
    written.look()  # too soon
    first.unlink()
    assert written.total()["files"] == 0
    clock.now = LOOK_S
    second = put(tmp_path, "b", 1)
    written.look()
    second.unlink()
    assert written.total()["files"] == 1
