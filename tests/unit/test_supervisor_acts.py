"""What the supervisor and the acts of nemeses owe one another: deaths told once, and nobody left standing still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebench.nemesis import lives
from oncebench.run import supervisor as module
from tests.unit.test_supervisor import World


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
