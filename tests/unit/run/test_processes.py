"""The generators and observers of a run: which one died, and what their status is together."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncebench.errors import UserError
from oncebench.live.status import LOADING
from oncebench.processes import child as process
from oncebench.record.numbered import numbered
from oncebench.run import processes as module
from oncebench.run.processes import GENERATOR, OBSERVER, RunProcesses
from oncebench.run.progress import RunProgress
from tests.unit.processes.test_child import ENDS_AT_THE_SECOND
from tests.waiting import wait_for

SUMMARY = {"planned": 10, "sent": 10, "acknowledged": 10, "failed": 0, "unknown": 0}
DONE = {"done": True, "summary": SUMMARY}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunProcesses]:
    """Two generators and two observers: processes that sleep."""

    def sleep(name: str, _command: object, log: Path, **_more: object) -> process.Child:
        return start(name, ["sleep", "300"], log)

    start = process.start
    monkeypatch.setattr(module.process, "start", sleep)
    with RunProcesses(tmp_path, {}) as run:
        run.start_observers([{"status_path": str(tmp_path / name)} for name in numbered("observer.jsonl", 2)])
        run.start_generators([{"status_path": str(tmp_path / name)} for name in numbered("load.jsonl", 2)])
        yield run
    assert not any(child.alive for child in run.children.values())


def kill(child: process.Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(60)


def test_a_killed_process_is_named_and_ends_the_load(run: RunProcesses, caplog: pytest.LogCaptureFixture) -> None:
    assert (run.died(), run.load_over) == ([], False)
    kill(run.of(GENERATOR)[1])
    kill(run.of(OBSERVER)[0])
    noted: list[tuple[str, Any]] = []
    for _ in range(2):
        run.report_deaths(lambda event, **fields: noted.append((event, fields)))
    assert run.load_over
    died = {fields["name"]: fields["why"] for event, fields in noted if event == "process-died"}
    assert died == dict.fromkeys(("observer 1 of 2", "generator 2 of 2"), "killed by signal 9")
    assert len(noted) == 2, "each is noted once"
    assert "generator 2 of 2 died: killed by signal 9. The run ends early" in caplog.text


def test_a_generator_that_left_its_summary_has_not_died(run: RunProcesses, tmp_path: Path) -> None:
    (tmp_path / "load-1.jsonl").write_text(json.dumps(DONE) + "\n")
    kill(run.of(GENERATOR)[0])
    assert (run.died(), run.load_over) == ([], False)
    (tmp_path / "load-2.jsonl").write_text(json.dumps(DONE) + "\n")
    kill(run.of(GENERATOR)[1])
    assert (run.died(), run.load_over) == ([], True)


def test_a_generator_that_gave_up_has_died(run: RunProcesses, tmp_path: Path) -> None:
    gave_up = {"done": True, "summary": {**SUMMARY, "error": "orders.jsonl has changed"}}
    (tmp_path / "load-1.jsonl").write_text(json.dumps(gave_up) + "\n")
    generator = run.of(GENERATOR)[0]
    kill(generator)
    assert (run.died(), run.load_over) == ([generator], True)


def test_a_stopped_process_has_not_died(run: RunProcesses) -> None:
    for kind in (GENERATOR, OBSERVER):
        run.stop(kind)
    assert run.died() == []
    assert not any(child.alive for child in run.children.values())


def test_a_process_that_died_before_the_stop_is_named_after_it(run: RunProcesses) -> None:
    kill(run.of(OBSERVER)[1])
    run.stop(OBSERVER)
    assert [child.name for child in run.died()] == ["observer 2 of 2"]


def test_processes_of_a_kind_are_stopped_together(run: RunProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_LIMIT_S", 60.0)
    calls: list[str] = []

    def noted(name: str) -> Callable[[process.Child, Any], Any]:
        call = getattr(process.Child, name)

        def made(child: process.Child, given: Any) -> Any:
            calls.append(name)
            return call(child, given)

        return made

    for name in ("send", "wait"):
        monkeypatch.setattr(process.Child, name, noted(name))
    for child in run.of(GENERATOR):
        child.freeze()
    run.stop(GENERATOR)  # SIGCONT lets both act on their SIGTERM
    assert [child.returncode for child in run.of(GENERATOR)] == [-signal.SIGTERM] * 2
    assert calls == ["send"] * 4 + ["wait"] * 4


def test_a_process_that_waits_gets_a_second_signal_before_the_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(name: str, _command: object, log: Path, **_more: object) -> process.Child:
        return begin(name, [sys.executable, "-c", ENDS_AT_THE_SECOND], log)

    begin = process.start
    monkeypatch.setattr(module.process, "start", start)
    with RunProcesses(tmp_path, {}) as run:
        run.start_generators([{"status_path": str(tmp_path / name)} for name in numbered("load.jsonl", 2)])
        children = run.of(GENERATOR)
        for child in children:
            wait_for("the handler", lambda child=child: "ready" in child.log.read_text())
        monkeypatch.setattr(module, "STOP_LIMIT_S", 2.0)
        run.stop(GENERATOR)
        assert [child.returncode for child in children] == [9, 9]


def test_a_process_that_cannot_be_killed_spares_no_other(run: RunProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = run.of(OBSERVER)[0]

    def fail() -> None:
        raise UserError("observer 1 of 2 could not be killed")

    for end in (lambda: run.stop(OBSERVER), run.__exit__):
        with monkeypatch.context() as patched, pytest.raises(UserError, match="observer 1 of 2 could not be killed"):
            patched.setattr(stuck, "kill_session", fail)
            end()
    others = [child for child in run.children.values() if child is not stuck]
    assert [child.returncode is None for child in others] == [False] * 3


def test_a_load_that_did_not_begin_names_the_process_that_ended(run: RunProcesses) -> None:
    second = run.of(GENERATOR)[1]
    second.log.write_text("loadgen: no Kafka broker answered.\n")
    second.kill_session()
    second._popen.returncode = 1
    said = f"nothing was sent, because generator 2 of 2 ended: loadgen: no Kafka broker answered. See {second.log}"
    assert str(run.nothing_sent()) == said


def test_files_of_several_processes_are_numbered(run: RunProcesses, tmp_path: Path) -> None:
    configs = {path.name for path in tmp_path.glob("*.json")}
    assert configs == {"observer-1.json", "observer-2.json", "generator-1.json", "generator-2.json"}
    assert list(run.children) == ["observer 1", "observer 2", "generator 1", "generator 2"]


def write(folder: Path, name: str, line: dict[str, Any]) -> None:
    with (folder / name).open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_status_lines_add_up_and_keep_the_largest_latency(tmp_path: Path) -> None:
    progress = RunProgress(tmp_path, 10.0, generators=2, observers=2)
    assert progress.status(LOADING).load == {}
    line = {"t_us": 5, "planned_by_now": 8, "sent": 7, "acknowledged": 6, "failed": 1, "rate_1s": 3.0}
    write(tmp_path, "load-1.jsonl", {**line, "lateness_p99_ms": 9.0})
    write(tmp_path, "load-2.jsonl", {**line, "t_us": 6, "lateness_p99_ms": 4.0})
    for number, p99 in ((1, None), (2, 30.0)):
        write(tmp_path, f"observer-{number}.jsonl",
              {"t_us": 1, "visible": 20, "last_row_us": 5 + number, "p50_ms": p99, "p99_ms": p99,
               "max_ended_at_us": number})  # fmt: skip
    status = progress.status(LOADING)
    assert status.load == {"t_us": 6, "planned_by_now": 16, "sent": 14, "acknowledged": 12, "failed": 2,
                           "rate_1s": 6.0, "lateness_p99_ms": 9.0}  # fmt: skip
    assert status.observer == {"t_us": 1, "visible": 40, "last_row_us": 7, "p50_ms": 30.0, "p99_ms": 30.0,
                               "max_ended_at_us": 2}  # fmt: skip


def test_a_load_is_done_when_every_generator_is(tmp_path: Path) -> None:
    progress = RunProgress(tmp_path, 10.0, generators=2)
    line = {"t_us": 5, "planned_by_now": 8, "sent": 7, "acknowledged": 6, "failed": 0, "rate_1s": 3.0}
    write(tmp_path, "load-1.jsonl", DONE)
    write(tmp_path, "load-2.jsonl", {**line, "lateness_p99_ms": 1.0})
    assert progress.status(LOADING).load["sent"] == 17
    assert progress.of_load() == ("acknowledged", 16), "one generator waits for Kafka"
    write(tmp_path, "load-2.jsonl", DONE)
    assert progress.status(LOADING).load_counts["acknowledged"] == 20
