"""Faults: how they are written, when they act, and that they act once."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.delivery.failpoints import FIRST_BATCH, POINTS, Failpoints, Fault, parse_fault, stops_attempt
from pipeline.job import Job


@pytest.mark.parametrize("point", POINTS)
def test_every_failpoint_can_be_named_and_read_back(point: str) -> None:
    for text in (point, f"{point}:kill", f"{point}:stop:2.5", f"{point}:kill@batch=4", f"{point}@after=2"):
        fault = parse_fault(text)
        assert fault.point == point
        assert parse_fault(str(fault)) == fault


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nowhere", "unknown failpoint 'nowhere'; the failpoints are: .*after-commit"),
        ("after-comit", r"unknown failpoint 'after-comit' \(did you mean after-commit\?\)"),
        ("kill", r"unknown failpoint 'kill'; .* A fault is POINT\[:ACTION.*, such as after-commit:kill"),
        ("after-commit@batch=x", "not of the form"),
        ("", "not of the form"),
        ("after-commit:stop:x", "not of the form"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_with_what_would_do(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_fault(text)


def lives(folder: Path, faults: tuple[str, ...], passes: str) -> subprocess.CompletedProcess[str]:
    """A process of its own session that passes failpoints; a kill takes it and nothing else."""
    code = f"""
        from pathlib import Path
        from oncebench.delivery.failpoints import Failpoints, parse_fault
        at = Failpoints(tuple(map(parse_fault, {faults!r})), Path({str(folder)!r}) / "hits.jsonl", None).reach
        {passes}
        print("survived")
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], start_new_session=True, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip


def hits(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "hits.jsonl").read_text().splitlines()]


def test_a_kill_takes_the_process_and_its_hit_is_on_disk_before(tmp_path: Path) -> None:
    died = lives(tmp_path, ("mid-write@batch=2",), 'at("mid-write", 1); at("mid-write", 2, 10, 1)')
    assert died.returncode == -signal.SIGKILL
    assert [(hit["point"], hit["batch"], hit["rows"], hit["partition"]) for hit in hits(tmp_path)] == [
        ("mid-write", 2, 10, 1)
    ]


def test_a_fault_acts_once_and_the_next_one_is_armed_after_it(tmp_path: Path) -> None:
    faults = ("after-prepare@batch=2", "after-prepare@batch=2")
    again = 'at("after-prepare", 2, 10)'
    assert lives(tmp_path, faults, again).returncode == -signal.SIGKILL
    assert lives(tmp_path, faults, again).returncode == -signal.SIGKILL
    assert lives(tmp_path, faults, again).stdout == "survived\n"
    assert len(hits(tmp_path)) == 2


def test_a_task_of_a_dying_or_stopping_pipeline_does_not_use_up_the_next_fault(tmp_path: Path) -> None:
    other_task = f"""
        import json, os
        hits = Path({str(tmp_path)!r}, "hits.jsonl")
        hits.write_text(json.dumps({{"batch": 2, "life": os.getsid(0), "action": "stop"}}) + chr(10))
        at("before-prepare", 2, 10, 1)
        print("passed", flush=True)
        hits.with_name("hits.jsonl.0.stopped").touch()
        at("before-prepare", 2, 10, 1)
    """
    assert lives(tmp_path, ("mid-write@batch=2", "before-prepare@batch=2"), other_task).stdout == "passed\n"


def test_a_driver_that_has_been_succeeded_uses_up_no_later_fault(tmp_path: Path) -> None:
    continued = f"""
        import json, os
        hits = Path({str(tmp_path)!r}, "hits.jsonl")
        hits.write_text(json.dumps({{"batch": 2, "life": os.getsid(0), "action": "zombie"}}) + chr(10))
        hits.with_name("hits.jsonl.0.stopped").touch()
        at("after-commit", 3, 10)
    """
    faults = ("after-prepare:zombie@batch=2", "after-commit")
    assert lives(tmp_path, faults, continued).stdout == "survived\n"
    assert lives(tmp_path, faults, 'at("after-commit", 3, 10)').returncode == -signal.SIGKILL


def test_a_task_in_another_session_dies_without_its_driver(tmp_path: Path) -> None:
    """On a Spark cluster a task has the session of its Spark worker.

    `life` is the session of the driver.
    """
    driver = os.getsid(0)
    faults = ("mid-write@batch=2", "after-prepare@batch=2")
    task = f"from dataclasses import replace; at = replace(at.__self__, life={driver}).reach; "
    died = lives(tmp_path, faults, f"{task}at('mid-write', 2, 10)")
    assert died.returncode == -signal.SIGKILL
    (hit,) = hits(tmp_path)
    assert (hit["life"], hit["session"], stops_attempt(hit)) == (driver, hit["pid"], False)
    same_attempt = lives(tmp_path, faults, f"{task}at('after-prepare', 2, 10)")
    assert same_attempt.stdout == "survived\n", "a task of the dying batch uses up the next fault"
    assert lives(tmp_path, faults, "at('after-prepare', 2, 10)").returncode == -signal.SIGKILL


def test_a_hit_of_the_driver_stops_the_attempt(tmp_path: Path) -> None:
    lives(tmp_path, ("mid-write@batch=2",), 'at("mid-write", 2, 10)')
    (hit,) = hits(tmp_path)
    assert stops_attempt(hit)
    del hit["session"]  # as in runs from before hits had it
    assert stops_attempt(hit)


@pytest.mark.parametrize(
    "text",
    ["after-prepare:zombie", "after-commit:stop:99999.999", "after-commit:stop:0.001", "after-commit:stop:80000.5"],
)
def test_a_fault_is_written_as_it_was_read_however_long_it_stops(text: str) -> None:
    assert str(parse_fault(text)) == text


def test_a_fault_that_waits_for_later_batches_does_not_act_in_the_replay(tmp_path: Path) -> None:
    faults = ("after-prepare@batch=7", "after-prepare@after=2")
    assert lives(tmp_path, faults, 'at("after-prepare", 7, 10)').returncode == -signal.SIGKILL
    early = 'at("after-prepare", 7, 10); at("after-prepare", 8, 10); at("after-prepare", 9, 0)'
    assert lives(tmp_path, faults, early).stdout == "survived\n"
    assert lives(tmp_path, faults, 'at("after-prepare", 9, 10)').returncode == -signal.SIGKILL


def test_without_a_batch_it_waits_for_a_settled_batch_with_rows(tmp_path: Path) -> None:
    quiet = f'at("before-decision", {FIRST_BATCH - 1}, 5); at("before-decision", {FIRST_BATCH}, 0)'
    assert lives(tmp_path, ("before-decision",), quiet).stdout == "survived\n"
    assert lives(tmp_path, ("before-decision",), f'at("before-decision", {FIRST_BATCH}, 1)').returncode < 0


def test_a_kill_takes_the_children_of_the_session_too(tmp_path: Path) -> None:
    passes = (
        "import subprocess, os; child = subprocess.Popen(['sleep', '60'], preexec_fn=lambda: os.setpgid(0, 0)); "
        "print(child.pid, flush=True); at('batch-start', 9)"
    )
    died = lives(tmp_path, ("batch-start",), passes)
    assert died.returncode == -signal.SIGKILL
    child = Path(f"/proc/{died.stdout.strip()}/stat")
    deadline = time.monotonic() + 10  # SIGKILL was sent before the parent died; the kernel ends it when it runs next
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] not in "ZX":
        assert time.monotonic() < deadline, "the child still lives"
        time.sleep(0.01)


def test_a_stop_stops_and_what_is_continued_goes_on(tmp_path: Path) -> None:
    code = f"""
        import sys; from pathlib import Path
        from oncebench.delivery.failpoints import Failpoints, parse_fault
        faults = (parse_fault("mid-commit:stop:1"),)
        Failpoints(faults, Path({str(tmp_path)!r}) / "hits.jsonl", None).reach("mid-commit", 9)
        print("went on")
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert hits(tmp_path)[0]["seconds"] == 1.0
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=30)[0] == "went on\n"


def test_a_stopped_task_elsewhere_lets_the_next_fault_act_only_when_it_goes_on(tmp_path: Path) -> None:
    """Other Spark workers go on meanwhile, and must not meet the next fault."""
    code = f"""
        import os; from pathlib import Path
        from oncebench.delivery.failpoints import Failpoints, parse_fault
        faults = (parse_fault("mid-write:stop:1"),)
        Failpoints(faults, Path({str(tmp_path)!r}) / "hits.jsonl", None, life={os.getsid(0)}).reach("mid-write", 9, 5)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], start_new_session=True)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert not (tmp_path / "hits.jsonl.0.stopped").exists()
        process.send_signal(signal.SIGCONT)
        assert process.wait(30) == 0
        assert (tmp_path / "hits.jsonl.0.stopped").exists()
    finally:
        process.kill()


def test_they_are_inert_without_faults(tmp_path: Path) -> None:
    Failpoints((), tmp_path / "hits.jsonl", None).reach("mid-write", 100, 100)
    assert not list(tmp_path.iterdir())


def test_the_trace_tells_what_was_passed_last(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    points = Failpoints((), tmp_path / "hits.jsonl", trace)
    points.reach("batch-start", 1)
    points.reach("mid-write", 1, 5, 0)
    assert [json.loads(line)["point"] for line in trace.read_text().splitlines()] == ["batch-start", "mid-write"]


@pytest.mark.parametrize(("results", "rows"), [([20, 0], 20), ([0, 0], 0), ([], None)])
def test_a_batch_is_delivered_together_with_its_rows_so_that_no_later_fault_is_spent_on_one_without(
    results: list[int], rows: int | None
) -> None:
    made = [SimpleNamespace(rows=each, quarantined={}) for each in results]
    batch: Any = SimpleNamespace(id=7, results=made, drained=False, dropped=[], timings_ms={})
    job: Any = SimpleNamespace(_progress=SimpleNamespace(write_delivered=lambda _: None))
    Job._note(job, batch)
    assert job._last_delivered == (7, rows)


def test_a_fault_says_what_it_is_in_full() -> None:
    assert str(Fault("after-commit")) == "after-commit:kill"
    assert str(Fault("after-commit", "stop", 2.0, 5)) == "after-commit:stop:2@batch=5"


def test_behind_sparks_commit_log_is_passed_where_only_a_trace_asks_and_not_where_nobody_does(tmp_path: Path) -> None:
    class Passed(Exception):
        pass

    def reach(point: str, batch: int, rows: int | None) -> None:
        raise Passed(point, batch, rows)

    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "3").touch()
    job: Any = SimpleNamespace(
        config=SimpleNamespace(faults=(), trace=True, checkpoint=tmp_path), _last_delivered=(3, 20),
        _failpoints=SimpleNamespace(reach=reach),
    )  # fmt: skip
    with pytest.raises(Passed) as passed:
        Job._watch_commit_log(job)
    assert passed.value.args == ("after-commit-log", 3, 20)
    job.config.trace = False
    Job._watch_commit_log(job)


def test_a_process_that_dies_before_its_hit_is_on_disk_disarms_no_fault(tmp_path: Path) -> None:
    """A random kill may fall between the token of a fault and its hit."""
    faults, reach = ("after-prepare@batch=2",), 'at("after-prepare", 2, 10)'
    dies_early = f"""
        import os
        import oncebench.delivery.failpoints as failpoints
        failpoints._append = lambda *_, **__: os._exit(9)
        {reach}
    """
    assert lives(tmp_path, faults, textwrap.indent(textwrap.dedent(dies_early), " " * 8).strip()).returncode == 9
    assert lives(tmp_path, faults, reach).returncode == -signal.SIGKILL
    assert len(hits(tmp_path)) == 1


def test_a_batch_is_cut_up_only_for_faults_that_ask_for_it() -> None:
    points = Failpoints((parse_fault("after-commit"),), Path("/dev/null"), None)
    assert points.asks_for("after-commit")
    assert not points.asks_for("mid-commit")
