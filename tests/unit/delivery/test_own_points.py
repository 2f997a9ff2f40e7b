"""Failpoints that a user's sink names.

They do nothing outside a run. Inside a run, a kill comes at exactly that point.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from oncebench import failpoint
from oncebench.delivery.failpoints import FIRST_BATCH, VARIABLE


def test_a_failpoint_does_nothing_outside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    failpoint("staged")


def run(
    folder: Path, batch: int, name: str = "staged", fault: str = "own-staged:kill"
) -> subprocess.CompletedProcess[str]:
    """A process of its own session: a kill takes it and nothing else."""
    code = f"""
        from pathlib import Path
        from oncebench import failpoint
        from oncebench.delivery.failpoints import Failpoints, begin_batch, parse_fault
        folder = Path({str(folder)!r})
        points = Failpoints((parse_fault({fault!r}),), folder / "hits.jsonl", folder / "trace.jsonl")
        begin_batch(folder / "failpoints.json", points, {batch})
        failpoint({name!r})
        print("survived")
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], start_new_session=True, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip


def test_a_run_is_killed_at_the_named_point_of_its_batch_only(tmp_path: Path) -> None:
    assert run(tmp_path, 2).stdout == "survived\n"
    assert run(tmp_path, 7, "other").stdout == "survived\n"
    assert run(tmp_path, 7).returncode == -9
    (hit,) = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert (hit["point"], hit["batch"], hit["action"]) == ("own-staged", 7, "kill")
    passed = [json.loads(line)["point"] for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert passed == ["own-staged", "own-other", "own-staged"]


def test_a_name_that_no_command_line_takes_is_refused_in_a_run(tmp_path: Path) -> None:
    assert "a name has small letters, digits" in run(tmp_path, 7, "Staged rows").stderr


def test_a_first_fault_can_wait_for_more_batches(tmp_path: Path) -> None:
    assert run(tmp_path, FIRST_BATCH + 3, fault="own-staged:kill@after=4").stdout == "survived\n"
    assert run(tmp_path, FIRST_BATCH + 4, fault="own-staged:kill@after=4").returncode == -9
