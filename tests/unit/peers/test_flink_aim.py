"""Flink is stopped when a checkpoint is complete, and runs in slices until then."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from peers.flink import aim


class FakeFlink:
    """A process that makes progress only while it is continued."""

    def __init__(self, steps: list[Callable[[], object]]) -> None:
        self.pid, self.alive, self.stopped = 7, True, False
        self._steps = steps

    def send(self, number: signal.Signals) -> None:
        self.stopped = number == signal.SIGSTOP
        if number == signal.SIGCONT and self._steps:
            self._steps.pop(0)()

    def stands_still(self, _pid: int) -> bool:
        return self.stopped


def checkpoint(completed: Path, number: int, complete: bool = False) -> Path:
    folder = completed / "job" / f"chk-{number}"
    folder.mkdir(parents=True)
    if complete:
        (folder / "_metadata").touch()
    return folder


def test_it_is_stopped_in_the_slice_in_which_a_new_checkpoint_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path, 4, complete=True)  # an earlier checkpoint is no reason to stop
    done: list[str] = []
    flink = FakeFlink([lambda: done.append("writes"), (tmp_path / "job" / "chk-5" / "_metadata").touch,
                       lambda: done.append("commits")])  # fmt: skip
    known = aim._checkpoints
    monkeypatch.setattr(aim, "_checkpoints", lambda path: (begin.pop() if begin else lambda: None)() or known(path))
    begin: list[Callable[[], object]] = [lambda: checkpoint(tmp_path, 5) and None, lambda: None]
    assert aim.stop_before_commit(tmp_path, flink)
    assert (flink.stopped, done) == (True, ["writes"])


def test_an_engine_without_a_checkpoint_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aim, "LIMIT_S", 0.05)
    flink = FakeFlink([])
    assert not aim.stop_before_commit(tmp_path, flink)
    assert not flink.stopped


def test_a_dead_engine_is_not_waited_for(tmp_path: Path) -> None:
    flink = FakeFlink([])
    flink.alive = False
    assert not aim.stop_before_commit(tmp_path, flink)
