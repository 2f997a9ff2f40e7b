"""The supervisor and a fault: each exit is recorded once, and no pipeline stays stopped."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from oncebench.errors import UserError
from oncebench.faults import disk
from oncebench.faults import process as process_faults
from oncebench.faults.context import FaultContext
from oncebench.processes import child as process
from oncebench.run.attempts import active_faults as module
from tests.unit.faults.fake_pipeline import Server
from tests.unit.run.attempts.fake_attempts import World


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A supervisor with a started fake pipeline."""
    made = World(tmp_path)
    monkeypatch.setattr(process, "start", made.start)
    with made.supervisor:
        made.supervisor.start()
        yield made


def test_an_attempt_that_dies_by_itself_in_a_crash_loop_is_recorded_once(
    supervised: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_faults, "pausing", lambda _seconds: iter([None]))
    supervised.hit("crash-loop")
    supervised.supervisor.watch()
    supervised.attempts[1].log.write_text("stopped: some failure\n")
    supervised.attempts[1].dies(1)
    supervised.supervisor.watch()
    assert supervised.events()[1:] == ["pipeline-killed", "pipeline-started", "pipeline-failed", "pipeline-started"]
    failed = supervised.timeline()[3]
    assert (failed["exit_code"], failed["why"]) == (1, "stopped: some failure")


def test_an_exit_is_recorded_once(supervised: World) -> None:
    supervised.attempts[0].dies(1)
    assert supervised.supervisor.record_exit() == (1, "it left no log")
    assert supervised.supervisor.record_exit() is None
    supervised.supervisor.watch()
    assert supervised.events()[1:] == ["pipeline-failed", "pipeline-started"]


@pytest.mark.parametrize("action", ["stop", "fill-checkpoint"])
def test_a_fault_that_is_cut_short_leaves_the_pipeline_running(
    supervised: World, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr(disk, "_wait_for_room", lambda *_: iter([None]))  # an older fault's ballast is still there
    supervised.hit(action, 3600.0)
    supervised.supervisor.watch()
    assert supervised.attempts[0].thawed == 0
    supervised.supervisor.end_faults()
    assert supervised.attempts[0].thawed == 1


def test_a_fault_that_had_not_begun_leaves_the_pipeline_running(
    supervised: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_context: FaultContext, _fault: object) -> bool:
        raise UserError("an earlier fault failed")

    supervised.hit("stop", 3600.0)
    with monkeypatch.context() as patched, pytest.raises(UserError):
        patched.setattr(module, "_has_ended", fails)
        supervised.supervisor.watch()
    assert supervised.attempts[0].thawed == 0
    supervised.supervisor.end_faults()
    assert supervised.attempts[0].thawed == 1


def test_a_pipeline_stays_stopped_until_its_next_fault_begins(supervised: World) -> None:
    supervised.supervisor._faults._servers = {"kafka": Server()}
    supervised.hit("stop-broker", 3600.0)
    supervised.supervisor.watch()
    assert supervised.attempts[0].thawed == 1
    supervised.hit("stop", 0.0, t_us=6)
    supervised.supervisor.end_faults()
    assert supervised.attempts[0].thawed == 1
    supervised.supervisor.watch()
    assert supervised.attempts[0].thawed == 2


def test_the_end_of_a_run_kills_a_zombie_without_continuing_it(supervised: World) -> None:
    supervised.hit("zombie")
    supervised.supervisor.watch()
    thawed: list[int] = []
    supervised.attempts[0].at_kill = lambda: thawed.append(supervised.attempts[0].thawed)
    supervised.supervisor.end_faults()
    assert (thawed, supervised.attempts[0].alive, supervised.attempts[1].alive) == ([0], False, True)


def test_a_fault_that_cannot_be_undone_does_not_keep_others_from_ending(supervised: World) -> None:
    undone = []

    def fault(number: int) -> Generator[None]:
        try:
            yield
        finally:
            undone.append(number)
            if number == 1:
                raise OSError("the broker does not start")

    (supervised.folder / "tmp-999999999").mkdir()
    for number in range(3):
        supervised.supervisor._faults._active.append(
            (cast("FaultContext", SimpleNamespace(standing=False)), fault(number))
        )
        next(supervised.supervisor._faults._active[-1][1])
    with pytest.raises(OSError, match="the broker does not start"):
        supervised.supervisor.__exit__(None, None, None)
    assert (undone, supervised.attempts[0].alive, supervised.supervisor.fault_active) == ([2, 1, 0], False, False)
    assert not list(supervised.folder.glob("tmp-*"))
    with pytest.raises(ValueError, match="closed"):
        supervised.supervisor.note("anything")


def test_a_fault_of_a_dead_attempt_continues_no_other_attempt(supervised: World) -> None:
    """The next attempt may stand still for a fault of its own."""
    supervised.hit("stop", 3600.0)
    supervised.attempts[0].dies(-9)
    supervised.supervisor.start_successor()
    supervised.supervisor.watch()
    assert "nemesis-idle" in supervised.events()
    assert supervised.attempts[1].thawed == 0
