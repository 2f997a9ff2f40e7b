"""The use of each process counts for a component with the name that reports use."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.errors import UserError
from oncebench.lab.engine import SPARK
from oncebench.run.meters import Meters, component
from tests.waiting import wait_for


@pytest.mark.parametrize(
    ("owner", "name", "leader", "expected"),
    [
        ("kafka", "java", True, "broker"),
        ("kafka 2", "java", True, "broker"),
        ("postgres", "postgres", False, "postgres"),
        ("observer", "python", True, "observer"),
        ("observer 3", "python", True, "observer"),
        ("generator 2", "python", True, "generator"),
        ("pipeline", "java", False, "spark_jvm"),
        ("pipeline", "python", True, "python_driver"),
        ("pipeline", "python", False, "python_workers"),
        ("executors 2", "java", True, "executors"),
        ("executors 2", "python", False, "executors"),
    ],
)
def test_a_process_belongs_to_a_component(owner: str, name: str, leader: bool, expected: str) -> None:
    assert component(SPARK, owner, name, leader) == expected


class Killed:
    """A server that a fault kills right after it was found alive."""

    alive = True

    @property
    def pid(self) -> int:
        raise UserError("it is gone")


def test_an_ended_process_is_left_out(tmp_path: Path) -> None:
    there: dict[str, Any] = {
        "kafka": Killed(), "pipeline": SimpleNamespace(alive=True, pid=7), "generator": SimpleNamespace(alive=False)
    }  # fmt: skip
    assert Meters(lambda: there, tmp_path)._sessions() == {7: "pipeline"}


def test_the_suites_own_use_counts_from_the_mark_until_drained(tmp_path: Path) -> None:
    with Meters(dict, tmp_path) as meters:
        _spin(0.2)
        meters.mark()
        _spin(0.1)
        meters.drained()
        _spin(0.2)
    own = meters.uses()["suite"]
    assert 0.1 <= own.cpu_s < 0.2
    assert own.peak_rss_bytes > 1_000_000


def test_use_after_drained_does_not_count(tmp_path: Path) -> None:
    code = "for line in __import__('sys').stdin: sum(range(int(line))); print(flush=True)"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    server = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes)

    def spin() -> None:
        print(20_000_000, file=server.stdin, flush=True)
        assert server.stdout is not None
        server.stdout.readline()

    with Meters(lambda: {"postgres": SimpleNamespace(alive=True, pid=server.pid)}, tmp_path) as meters:
        spin()
        meters.drained()
        until = meters.uses()["postgres"]
        spin()
    server.communicate(timeout=30)
    assert until.cpu_s > 0
    assert meters.uses()["postgres"] == until


def test_the_suites_use_is_available_during_a_run(tmp_path: Path) -> None:
    with Meters(dict, tmp_path) as meters:
        _spin(0.05)
        wait_for("a sample", lambda: meters.uses()["suite"].cpu_s >= 0.05)


def _spin(cpu_s: float) -> None:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass
