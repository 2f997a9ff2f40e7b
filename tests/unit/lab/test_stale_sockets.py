"""The next start removes the socket folders of dead pipelines, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oncebench.lab import lab
from oncebench.lab.spark import stale_sockets
from oncebench.lab.spark.stale_sockets import TEMP, remove_stale_sockets
from pipeline.spark.sockets import _PLACE, _prefix

DEAD = 999_999_999


def test_only_folders_of_dead_pipelines_are_removed(tmp_path: Path) -> None:
    dead = [tmp_path / f"{_prefix(tmp_path / record)}{DEAD}-x_1" for record in ("one", "other")]
    others = [tmp_path / name for name in (
        f"{_prefix(tmp_path)}{os.getppid()}-x", f"oncebench-notes-{DEAD}-x", f"{_prefix(tmp_path)}{DEAD}", "kept",
    )]  # fmt: skip
    for folder in (*dead, *others):
        folder.mkdir()
        (folder / ".socket.sock").touch()
    link = tmp_path / f"{_prefix(tmp_path)}{DEAD}-link"
    link.symlink_to(tmp_path / "kept")
    remove_stale_sockets(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*others, link])
    assert (tmp_path / "kept" / ".socket.sock").exists()


def test_folders_of_another_user_stay_and_without_proc_all_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / f"{_prefix(tmp_path)}{DEAD}-x"
    dead.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: dead.stat().st_uid + 1)
    remove_stale_sockets(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(stale_sockets, "PROC", tmp_path / "no proc")
    remove_stale_sockets(tmp_path)
    assert dead.exists()
    monkeypatch.undo()
    remove_stale_sockets(tmp_path)
    assert not dead.exists()


def test_a_lab_removes_them_where_pipelines_create_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert TEMP == _PLACE
    removed: list[bool] = []
    monkeypatch.setattr(lab, "remove_stale_sockets", lambda: removed.append(True))
    monkeypatch.setattr(lab, "find_java", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError), lab.open_lab(tmp_path):
        pass
    assert removed == [True]
