"""What the supervisor and the acts of nemeses owe one another: deaths told once, and nobody left standing still."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from oncebench.errors import UserError
from oncebench.faults import disk
from oncebench.faults import process as lives
from oncebench.faults.context import Stage
from oncebench.run import supervisor as module
from tests.unit.faults.faults_world import Server
from tests.unit.run.test_supervisor import World


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A supervisor whose pipeline has been started, and only seems to run."""
    made = World(tmp_path)
    monkeypatch.setattr(module.process, "start", made.start)
    with made.supervisor:
        made.supervisor.start()
        yield made


def test_a_life_that_dies_by_itself_in_a_crash_loop_is_told_once_with_exit_code_and_words(
    supervised: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives, "pausing", lambda _seconds: iter([None]))
    supervised.hit("crash-loop")
    supervised.supervisor.watch()
    supervised.lives[1].log.write_text("stopped: of something\n")
    supervised.lives[1].dies(1)
    supervised.supervisor.watch()
    assert supervised.events()[1:] == ["pipeline-killed", "pipeline-started", "pipeline-failed", "pipeline-started"]
    failed = supervised.told()[3]
    assert (failed["exit_code"], failed["why"]) == (1, "stopped: of something")


def test_a_death_that_a_nemesis_has_told_of_is_not_told_again(supervised: World) -> None:
    supervised.lives[0].dies(1)
    assert supervised.supervisor.note_death() == (1, "it left no log")
    assert supervised.supervisor.note_death() is None
    supervised.supervisor.watch()
    assert supervised.events()[1:] == ["pipeline-failed", "pipeline-started"]


@pytest.mark.parametrize("action", ["stop", "fill-checkpoint"])
def test_an_act_that_is_cut_short_before_it_lets_the_pipeline_go_on_leaves_it_going_on(
    supervised: World, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr(disk, "_room", lambda *_: iter([None]))  # an older fault's ballast is still there
    supervised.hit(action, 3600.0)
    supervised.supervisor.watch()
    assert supervised.lives[0].thawed == 0
    supervised.supervisor.end_acts()
    assert supervised.lives[0].thawed == 1


def test_an_act_that_had_not_begun_leaves_the_pipeline_going_on(
    supervised: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_stage: Stage, _act: object) -> bool:
        raise UserError("an act before it could not do its work")

    supervised.hit("stop", 3600.0)
    with monkeypatch.context() as patched, pytest.raises(UserError):
        patched.setattr(module, "_is_over", fails)
        supervised.supervisor.watch()
    assert supervised.lives[0].thawed == 0
    supervised.supervisor.end_acts()
    assert supervised.lives[0].thawed == 1


def test_a_pipeline_that_stands_still_for_the_next_fault_does_so_until_that_act_begins(supervised: World) -> None:
    supervised.supervisor._servers = {"kafka": Server()}
    supervised.hit("stop-broker", 3600.0)
    supervised.supervisor.watch()
    assert supervised.lives[0].thawed == 1
    supervised.hit("stop", 0.0, t_us=6)
    supervised.supervisor.end_acts()
    assert supervised.lives[0].thawed == 1
    supervised.supervisor.watch()
    assert supervised.lives[0].thawed == 2


def test_a_zombie_that_is_ended_with_the_run_is_killed_and_not_continued_first(supervised: World) -> None:
    supervised.hit("zombie")
    supervised.supervisor.watch()
    thawed: list[int] = []
    supervised.lives[0].at_kill = lambda: thawed.append(supervised.lives[0].thawed)
    supervised.supervisor.end_acts()
    assert (thawed, supervised.lives[0].alive, supervised.lives[1].alive) == ([0], False, True)


def test_what_cannot_be_mended_keeps_nothing_else_from_being_ended(supervised: World) -> None:
    mended = []

    def act(number: int) -> Generator[None]:
        try:
            yield
        finally:
            mended.append(number)
            if number == 1:
                raise OSError("the broker does not start")

    (supervised.folder / "tmp-999999999").mkdir()
    for number in range(3):
        supervised.supervisor._acting.append((cast("Stage", SimpleNamespace(standing=False)), act(number)))
        next(supervised.supervisor._acting[-1][1])
    with pytest.raises(OSError, match="the broker does not start"):
        supervised.supervisor.__exit__(None, None, None)
    assert (mended, supervised.lives[0].alive, supervised.supervisor.acting) == ([2, 1, 0], False, False)
    assert not list(supervised.folder.glob("tmp-*"))
    with pytest.raises(ValueError, match="closed"):
        supervised.supervisor.note("anything")
