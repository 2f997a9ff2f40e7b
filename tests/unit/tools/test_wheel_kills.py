"""The kills of an installed job: the documented code, and moments by a seed.

The count finds each fault.
"""

from __future__ import annotations

import ast
import signal
import tempfile
import threading
import time
import tomllib
from pathlib import Path

import pytest

from tests import ROOT
from tests.waiting import gone
from tools.long_runs import clean_install, plain_count, wheel_kills
from tools.long_runs.plain_count import DUPLICATED, WRONG, count
from tools.long_runs.wheel_kills import EVERY, EXACTLY_ONCE, OUTPUTS, SPARK, Job, documented_jobs, exchanged, planned


@pytest.mark.parametrize(
    ("read", "lost", "duplicated", "never_sent"),
    [
        (["a", "b", "c"], 0, 0, 0),
        (["c", "a", "b"], 0, 0, 0),
        (["a", "c"], 1, 0, 0),
        (["a", "b", "c", "b", "b"], 0, 1, 0),
        (["a", "b", "c", "d", "d"], 0, 0, 1),
        (["a", "a", "B", "c"], 1, 1, 1),
        ([], 3, 0, 0),
    ],
)
def test_each_lost_duplicated_and_foreign_order_is_counted(
    read: list[str], lost: int, duplicated: int, never_sent: int
) -> None:
    counted = count(["a", "b", "c"], read)
    assert counted == {"sent": 3, "read": len(read), "lost": lost, "duplicated": duplicated, "never sent": never_sent}


def test_an_order_that_was_sent_twice_is_expected_twice() -> None:
    assert [count(["a", "a"], read)["lost"] for read in (["a"], ["a", "a"])] == [1, 0]


@pytest.mark.parametrize(
    ("read", "code"),
    [("ab", 0), ("aab", DUPLICATED), ("a", WRONG), ("abc", WRONG), ("aac", WRONG), ("", WRONG)],
)
def test_the_exit_code_tells_duplicated_orders_from_lost_and_foreign_ones(
    read: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sent").write_text("a\nb\n")
    monkeypatch.setattr(plain_count, "in_topic", lambda *_place: iter(read))
    assert plain_count.main(str(tmp_path / "sent"), "kafka", "servers", "topic") == code


def test_a_job_has_its_guarantee_once_for_each_output() -> None:
    found = {name: code.count(f'guarantee="{EXACTLY_ONCE}"') for name, code in documented_jobs().items()}
    assert found == {name: len(outputs) for name, outputs in OUTPUTS.items()}


def test_the_counting_program_has_no_code_of_the_project() -> None:
    tree = ast.parse(Path(plain_count.__file__).read_text())
    modules = {each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    modules |= {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
    assert {name.partition(".")[0] for name in modules} <= {
        "__future__", "collections", "confluent_kafka", "json", "os", "pathlib", "psycopg", "sys",
    }  # fmt: skip


def test_seed_decides_the_moments_and_some_come_while_the_job_starts() -> None:
    plan = planned(1, 50)
    assert plan == planned(1, 50) != planned(2, 50)
    assert sum(starting for starting, _ in plan) == 50 // EVERY


def test_the_page_and_the_examples_have_a_job_for_each_output() -> None:
    jobs = documented_jobs()
    assert set(jobs) == set(OUTPUTS)
    sinks = {"kafka": "KafkaSink(", "postgres": "PostgresSink("}
    assert {name: [sink for sink in sinks if sinks[sink] in code] for name, code in jobs.items()} == {
        name: list(outputs) for name, outputs in OUTPUTS.items()
    }
    for code in jobs.values():
        compile(code, "job.py", "exec")
        assert "broker1:9092" in code


@pytest.mark.parametrize("line", ["rows = 2", "sink = 1"])
def test_a_line_of_the_page_that_replaces_none_or_two_is_refused(line: str) -> None:
    with pytest.raises(SystemExit, match="not one"):
        exchanged("rows = 1\nrows = 1\n", line)


def test_a_batch_is_open_until_the_commit_log_has_it(tmp_path: Path) -> None:
    job = Job(tmp_path, tmp_path, {})
    assert (job.newest("commits"), job.open()) == ({}, {})
    for name in ("offsets/0", "offsets/1", "offsets/10", "commits/0", "commits/.10.crc", "commits/.10.tmp"):
        path = tmp_path / "state" / "orders" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert (job.newest("commits"), job.open()) == ({"orders": 0}, {"orders": 10})
    (tmp_path / "state" / "orders" / "commits" / "10").touch()
    assert job.open() == {}


def test_the_page_the_extra_and_the_kills_have_one_version_of_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["spark"] == [f"pyspark=={SPARK}"]
    assert all(f"spark-sql-kafka-0-10_2.13:{SPARK}" in code for code in documented_jobs().values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interruption_ends_the_children_and_removes_the_folder(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    started = tmp_path / "started"

    def interrupt() -> None:
        while not (started.exists() and started.read_text().endswith("\n")):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    def install(folder: Path, _pyspark: str) -> Path:
        """Stands for pip, which makes temporary files, starts a process and waits for it."""
        threading.Thread(target=interrupt, daemon=True).start()
        clean_install._run("sh", "-c", f"mktemp; sleep 60 & echo $! > {started}; wait", cwd=folder)
        raise AssertionError("it was not interrupted")

    monkeypatch.setattr(wheel_kills, "install", install)
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert wheel_kills.main([]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["started"]
    assert handlers == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    child, deadline = int(started.read_text()), time.monotonic() + 10
    while not gone(child):
        assert time.monotonic() < deadline, "the child still runs"
        time.sleep(0.01)


@pytest.mark.parametrize(("kept", "code"), [(True, 0), (False, 1)])
def test_only_a_run_that_fails_keeps_its_folder(
    kept: bool, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(wheel_kills, "install", lambda folder, _pyspark: folder)
    monkeypatch.setattr(wheel_kills, "kill_jobs", lambda *_: kept)
    assert wheel_kills.main([]) == code
    assert len(list(tmp_path.iterdir())) == code
