"""The operator: the same order for the same seed, and undone operations.

The tests also cover the files of a run, and how the tool ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest

from oncebench.errors import UserError
from oncebench.faults.server import KAFKA, POSTGRES
from oncebench.live.status import DRAINING, LOADING, WARMING_UP
from oncebench.run.interrupt import nothing_to_report
from tools.long_runs import operator_run
from tools.long_runs.operator_run import OPERATIONS, Operation, Operator, Undo, deaths, longest_stall, planned


def test_seed_decides_the_order_and_every_operation_comes() -> None:
    plan = planned(1, 60, (KAFKA, POSTGRES))
    assert plan == planned(1, 60, (KAFKA, POSTGRES)) != planned(2, 60, (KAFKA, POSTGRES))
    assert set(plan) == set(OPERATIONS)


def test_a_run_has_operations_of_its_own_servers_and_those_asked_for() -> None:
    assert {each.server for each in planned(1, 60, (KAFKA,))} == {KAFKA}
    assert {each.name for each in planned(1, 60, (KAFKA,), ["send-garbage"])} == {"send-garbage"}


class Run:
    """An operator on no servers, and the time that its clock shows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, do: Callable[[Any], tuple[str, Undo]]) -> None:
        (folder / "cell.json").write_text(json.dumps({"cell": {"sink": "kafka"}, "topics": {"input": "in"}}))
        self.now, self.log = 0.0, list[str]()
        monkeypatch.setattr(operator_run.time, "monotonic", lambda: self.now)
        plan = [Operation("one", do), Operation("two", do)]
        lab: Any = None
        self.operator = Operator(lab, folder, plan, 30.0, 1, lambda line: self.log.append(line.split(" ", 1)[1]))

    def look(self, now: float) -> list[str]:
        self.now = now
        self.operator.look(LOADING)
        return self.log


def test_operations_come_at_intervals_and_are_undone_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, lambda _site: ("done", lambda: None))
    run.operator.look(WARMING_UP)
    assert [list(run.look(at)) for at in (0, 29)] == [[], []]
    assert run.look(30) == ["one: done"]
    assert run.look(49) == ["one: done"]
    assert run.look(51)[1:] == ["one: undone"]
    assert run.look(61)[2:] == ["two: done"]
    run.operator.look(DRAINING)
    assert run.log[3:] == ["two: undone"]


def test_what_cannot_be_undone_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [UserError("no server"), TimeoutError()]

    def undo() -> None:
        if failures:
            raise failures.pop(0)

    run = Run(tmp_path, monkeypatch, lambda _site: ("done", undo))
    for at in (0, 30, 51, 54, 57, 61):
        run.look(at)
    assert run.log == [
        "one: done", "one FAILED: no server", "one FAILED: no answer in time", "one: undone", "two: done",
    ]  # fmt: skip


def test_an_operation_that_fails_leaves_the_next_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_site: Any) -> tuple[str, Undo]:
        raise UserError("the broker is away")

    run = Run(tmp_path, monkeypatch, fail)
    for at in (0, 30, 60):
        run.look(at)
    assert run.log == ["one FAILED: the broker is away", "two FAILED: the broker is away"]


def test_deaths_and_the_longest_stall_come_from_the_runs_files(tmp_path: Path) -> None:
    died = {"t_us": 0, "event": "pipeline-failed", "exit_code": 1, "why": "stopped: the server is away"}
    (tmp_path / "timeline.jsonl").write_text(json.dumps(died) + "\n")
    lines = [{"kind": "batch", "t_us": round(at * 1e6)} for at in (1, 2, 12.5, 13)]
    (tmp_path / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [line.split(" ", 1)[1] for line in deaths(tmp_path)] == ["exit code 1: stopped: the server is away"]
    stall = longest_stall(tmp_path)
    assert stall is not None
    assert stall[0] == 10.5


@pytest.fixture
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool without its servers and without its check of the disk."""
    monkeypatch.setattr(operator_run, "open_lab", lambda *_: nullcontext())
    monkeypatch.setattr(operator_run, "require_free", lambda *_: None)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (nothing_to_report("load began"), 130, "interrupted before the load began: there is nothing to report\n"),
        (KeyboardInterrupt(), 130, "interrupted: there is no report\n"),
        (UserError("Java is missing", exit_code=5), 5, "Java is missing\n"),
    ],
)
def test_ctrl_c_and_an_error_end_the_tool_with_one_sentence(
    error: BaseException,
    code: int,
    says: str,
    no_servers: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ends(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(operator_run, "measure", ends)
    assert operator_run.main(["--work-dir", str(tmp_path / "run")]) == code
    assert capsys.readouterr().err.endswith(says)


@pytest.mark.parametrize(("interrupted", "code"), [(True, 130), (False, 1)])
def test_an_interrupted_report_has_the_exit_code_of_an_interruption(
    interrupted: bool, code: int, no_servers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {"interrupted": interrupted, "verdict": "unknown", "cell": {"sink": "kafka", "faults": []}}
    monkeypatch.setattr(operator_run, "measure", lambda *_: report)
    monkeypatch.setattr(operator_run, "summary", lambda *_: "")
    monkeypatch.setattr(operator_run, "exit_code", lambda _reports: 1)
    assert operator_run.main(["--work-dir", str(tmp_path / "run")]) == code
