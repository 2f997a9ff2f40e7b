"""Preloading is waited for as long as it gets on, and whoever waited in vain is told what to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen.errors import LedgerError
from oncebench.errors import UserError
from oncebench.run import cell, priming
from oncebench.run.cell import _Run
from oncebench.run.progress_timeout import Patience


class Preloading(_Run):
    """A run that is to begin 10,000 sessions, with a pipeline that does nothing by itself."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.primed, self.position = folder, 0, {}
        self.children: dict[str, Any] = {}
        self.interrupted = threading.Event()
        self.cell: Any = SimpleNamespace(open_sessions=10_000)
        self.lab: Any = SimpleNamespace(kafka=SimpleNamespace(bootstrap_servers=""))
        self.topics: Any = SimpleNamespace(input="in")
        self.config: Any = None
        self.is_running = False
        self.supervisor: Any = SimpleNamespace(start=lambda _config: None, running=lambda: self.is_running, restarts=0)
        self.patience: list[Patience] = []
        monkeypatch.setattr(cell, "open_sessions", lambda *_: 0)
        monkeypatch.setattr(cell, "replace", lambda config, **_: config)

    def _input_ends(self) -> dict[str, int]:
        return {"0": 10_000}

    def _until(self, phase: str, done: Callable[[], bool], patience: Patience, interrupted_s: float = 0.0) -> bool:
        self.patience.append(patience)
        return False


def test_preloading_in_vain_says_what_to_do_and_where_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError) as told:
        Preloading(tmp_path, monkeypatch)._preload()
    assert str(told.value) == (
        "preloading the pipeline got no further for 170 s. Is the machine busy? Run it again when it is not or with "
        f"fewer --open-sessions; what the pipeline said is in {tmp_path}/logs/pipeline.log"
    )


def test_preloading_is_waited_for_anew_when_spark_is_up_and_with_every_batch_and_not_with_another_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Preloading(tmp_path, monkeypatch)
    with pytest.raises(UserError):
        run._preload()
    (patience,) = run.patience
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(patience, "_clock", lambda: clock.now)
    patience._until = 170.0

    def over_at(now: float) -> bool:
        clock.now = now
        return patience.over()

    run.is_running = True
    assert not over_at(160.0)
    run.position = {"0": 5000}
    assert not over_at(320.0)
    run.is_running, run.supervisor.restarts = False, 1
    assert not over_at(480.0)
    run.is_running, run.supervisor.restarts = True, 1
    assert not over_at(640.0)
    assert over_at(651.0)


def test_a_priming_load_that_cannot_start_is_an_error_of_its_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_config: object) -> None:
        raise LedgerError("no room for a ledger")

    monkeypatch.setattr(priming, "run_load", fail)
    for send in (priming.prime, priming.open_sessions):
        with pytest.raises(UserError, match=r"^the first events could not be sent: no room for a ledger$"):
            send("x:1", "in", tmp_path, 1)
