"""Socket folders of dead pipelines are removed at the next start, and nothing else in their place is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oncebench.lab import lab
from oncebench.run.spark import stale_sockets
from oncebench.run.spark.stale_sockets import PLACE, sweep_left
from pipeline.spark.sockets import _PLACE, _prefix

DEAD = 999_999_999


def test_folders_of_dead_pipelines_go_whatever_their_record_and_no_others(tmp_path: Path) -> None:
    dead = [tmp_path / f"{_prefix(tmp_path / record)}{DEAD}-x_1" for record in ("one", "other")]
    others = [tmp_path / name for name in (
        f"{_prefix(tmp_path)}{os.getppid()}-x", f"oncebench-notes-{DEAD}-x", f"{_prefix(tmp_path)}{DEAD}", "kept",
    )]  # fmt: skip
    for folder in (*dead, *others):
        folder.mkdir()
        (folder / ".socket.sock").touch()
    link = tmp_path / f"{_prefix(tmp_path)}{DEAD}-link"
    link.symlink_to(tmp_path / "kept")
    sweep_left(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*others, link])
    assert (tmp_path / "kept" / ".socket.sock").exists()


def test_folders_of_another_user_stay_and_all_do_where_nobody_tells_who_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / f"{_prefix(tmp_path)}{DEAD}-x"
    dead.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: dead.stat().st_uid + 1)
    sweep_left(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(stale_sockets, "PROC", tmp_path / "no proc")
    sweep_left(tmp_path)
    assert dead.exists()
    monkeypatch.undo()
    sweep_left(tmp_path)
    assert not dead.exists()


def test_it_looks_where_pipelines_make_them_and_at_every_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert PLACE == _PLACE
    swept: list[bool] = []
    monkeypatch.setattr(lab, "sweep_left", lambda: swept.append(True))
    monkeypatch.setattr(lab, "find_java", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError), lab.open_lab(tmp_path):
        pass
    assert swept == [True]
