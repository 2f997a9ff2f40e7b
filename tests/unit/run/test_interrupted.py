"""What a person is told who interrupts a run before there is anything to report, and how an interruption is noted."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.errors import ExitCode, UserError
from oncebench.run import cell
from oncebench.run.cell import _Run
from oncebench.run.progress_timeout import Patience


class Starting(_Run):
    """A run of which nothing has started yet, and which has been interrupted."""

    def __init__(self, folder: Path) -> None:
        self.noted: list[str] = []
        self.folder, self.phase, self.interruption_noted = folder, "starting", False
        self.children: dict[str, Any] = {}
        self.cell: Any = SimpleNamespace(faults=())
        self.load_s = 1.0
        self.supervisor: Any = SimpleNamespace(
            child=None,
            note=lambda event, **_fields: self.noted.append(event),
            end_acts=lambda: self.noted.append("acts ended"),
        )
        self.lab: Any = SimpleNamespace(own_broker=None)
        self.interrupted = threading.Event()
        self.interrupted.set()

    def _look(self) -> None:
        pass

    def _start_load(self) -> None:
        self.children["generator"] = SimpleNamespace(alive=True, log=self.folder / "log", stop_gently=lambda _s: None)


@pytest.mark.parametrize("load_is_there", [False, True])
def test_an_interruption_while_starting_says_that_there_is_nothing_to_report(
    tmp_path: Path, load_is_there: bool
) -> None:
    run = Starting(tmp_path)
    run.children = {"generator": None} if load_is_there else {}
    before = "pipeline ran" if load_is_there else "load began"
    with pytest.raises(UserError, match=f"^interrupted before the {before}: there is nothing to report$") as told:
        run._wait("starting", lambda: False)
    assert told.value.exit_code == ExitCode.INTERRUPTED


def test_a_generator_that_was_interrupted_before_it_sent_anything_is_not_blamed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^interrupted before the load began"):
        Starting(tmp_path)._load()


def test_an_interruption_is_noted_once_and_ends_what_nemeses_are_at(tmp_path: Path) -> None:
    run = Starting(tmp_path)
    assert not run._until("loading", lambda: False, Patience(1))
    assert not run._until("draining", lambda: False, Patience(1))
    assert run.noted == ["acts ended", "interrupted"]


@pytest.mark.parametrize("interrupted", [False, True])
def test_nothing_is_asked_of_a_server_before_the_nemesis_that_holds_it_has_let_it_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    done: list[str] = []
    run = Starting(tmp_path)
    run.interruption_noted = interrupted  # a nemesis may begin after the note, which has ended those before it
    if not interrupted:
        run.interrupted.clear()
    run.supervisor.child, run.supervisor.breaking = object(), True

    def ended() -> None:
        done.append("mended")
        run.supervisor.breaking = False

    run.supervisor.watch = run.supervisor.end_acts = ended
    run.batch, run.primed, run.topics = {}, 0, SimpleNamespace(input="in")
    run.lab.kafka = SimpleNamespace(bootstrap_servers="")
    run.supervisor.start, run.supervisor.running = lambda: None, lambda: True
    monkeypatch.setattr(cell, "PRIMING_BATCHES", 1)
    monkeypatch.setattr(cell, "prime", lambda *_: done.append("primed") or 1)
    run._has_batch_after = lambda _batch: True  # type: ignore[method-assign]
    run._start_pipeline()
    assert list(dict.fromkeys(done)) == ["mended", "primed"]


def test_a_life_on_an_older_checkpoint_is_not_measured_by_the_position_of_the_one_before() -> None:
    def batch(end: int) -> dict[str, Any]:
        return {"kind": "batch", "batch": 1, "end_offsets": {"0": end}}

    lines = iter([[batch(500), batch(400)], [{"kind": "started"}, batch(10)]])
    quiet = SimpleNamespace(last=dict, look=lambda: None, told=str)
    run: Any = SimpleNamespace(
        progress_lines=SimpleNamespace(fresh=lambda: next(lines)), position={}, batch={}, load_lines=quiet,
        observer_lines=quiet, meters=SimpleNamespace(checkpoint=quiet), faults=quiet, primed=0, phase="draining",
        _end_warm_up=lambda: None,
        cell=SimpleNamespace(rate="max"), show=lambda _seen: None,
    )  # fmt: skip
    _Run._look(run)
    assert run.position == {"0": 500}
    _Run._look(run)
    assert run.position == {"0": 10}
