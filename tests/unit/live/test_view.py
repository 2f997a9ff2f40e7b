"""The live view: each phase names what it waits for; figures appear when they exist."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from oncebench.live import status as states
from oncebench.live import view as module
from oncebench.live.history import History
from oncebench.live.status import LOADING, STARTING, Phase, RunStatus
from oncebench.live.view import _LineView, _TableView, fields

ALL = [value for value in vars(states).values() if isinstance(value, Phase)]


def displayed(status: RunStatus, after_s: float = 12.0) -> dict[str, str]:
    """The figures of a run that has been in one phase for so long."""
    now = [100.0]
    history = History(lambda: now[0])
    history.add(status)
    now[0] += after_s
    return dict(fields(status, history))


def test_a_start_names_what_it_waits_for_and_has_no_figures() -> None:
    assert displayed(RunStatus(STARTING, load_s=10.0)) == {
        "phase": "starting: waiting for the pipeline to start the query, 12 s"
    }


@pytest.mark.parametrize("phase", ALL)
def test_every_phase_without_figures_names_what_it_waits_for(phase: Phase) -> None:
    (text,) = displayed(RunStatus(phase, load_s=10.0)).values()
    assert re.fullmatch(rf"{phase.name}: [a-zA-Z ]{{10,}}, 12 s", text)


def test_a_figure_appears_when_it_exists() -> None:
    observer = {"visible": 0, "p99_ms": None}
    assert displayed(RunStatus(LOADING, {"sent": 50}, observer)).keys() == {"phase", "sent", "events/s"}
    observer["visible"] = 20
    found = displayed(RunStatus(LOADING, {"sent": 50}, observer, {"batch": 3}, 7, "mid-write:kill in batch 3"))
    assert list(found) == ["phase", "sent", "events/s", "visible", "rows/s", "lag", "p99", "batch", "fault"]
    assert (found["p99"], found["lag"], found["batch"]) == ("-", "7", "3")


def test_an_ended_load_has_a_total_and_no_rate() -> None:
    found = displayed(RunStatus(states.DRAINING, {"summary": {"sent": 50}}))
    assert (found["sent"], "events/s" in found) == ("50", False)


def test_without_a_terminal_each_change_of_phase_or_fault_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    view = _LineView("cell")
    for fault in ("", "", "a:kill in batch 6, restarting", "a:kill in batch 6, restarting", "a:kill in batch 6"):
        view(RunStatus(LOADING, fault=fault))
    assert [line.partition("fault ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "",
        "a:kill in batch 6, restarting",
        "a:kill in batch 6",
    ]


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(module, "describe_backlog", lambda _history: "the pipeline is behind")
    return "the pipeline is behind"


def test_a_line_begins_with_the_backlog(behind: str, capsys: pytest.CaptureFixture[str]) -> None:
    _LineView("cell")(RunStatus(LOADING, {"sent": 50}))
    assert re.match(rf"[\d:]+  cell  {behind}  phase loading", capsys.readouterr().err)


def test_a_table_has_the_backlog_above_its_figures(behind: str) -> None:
    view = _TableView("cell")
    view(RunStatus(LOADING, {"sent": 50}))
    lines = drawn(view._draw()).splitlines()
    assert lines[0].strip() == behind
    assert any("sent" in line for line in lines[1:])


def test_a_table_counts_the_seconds_of_a_phase_while_the_run_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    view = _TableView("cell")
    now = [100.0]
    monkeypatch.setattr(view, "_history", History(lambda: now[0]))
    view(RunStatus(states.READING))
    now[0] += 33.0
    assert "33 s" in drawn(view._draw())


def test_a_narrow_terminal_shows_the_whole_phase() -> None:
    view = _TableView("kafka exactly-once")
    load = {"sent": 50, "planned_by_now": 50}
    view(RunStatus(LOADING, load, {"visible": 40, "p99_ms": 1.0}, {"batch": 4}, 300, "a:kill", load_s=10.0))
    assert "kafka exactly-once  loading, 10 s left" in drawn(view._draw(), width=60)
    view(RunStatus(STARTING))
    assert (
        drawn(view._draw(), width=80).strip()
        == "kafka exactly-once  starting: waiting for the pipeline to start the query"
    )


def drawn(renderable: Any, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text
