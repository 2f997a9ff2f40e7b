"""A workspace: one run and the runs of a series leave the same files behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncebench.experiments import workspace
from oncebench.experiments.series import open_series
from oncebench.experiments.workspace import Workspace, run_one
from oncebench.faults.disk import CHECKPOINT
from oncebench.lab.engine import SPARK
from oncebench.report.results import Results
from oncebench.scenario.cell import Cell

CELL = Cell("kafka", "exactly-once", "two-phase")


@pytest.fixture
def got(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replaces the lab and the run; returns the arguments with which they were called."""
    got: list[Any] = []

    @contextmanager
    def lab(folder: Path, kafka: Any, sinks: Any, start_timeout_s: float, *_: Any) -> Iterator[None]:
        got.append((kafka, sinks, start_timeout_s))
        (folder / "kafka").mkdir()
        yield

    def measure(_cell: Cell, _lab: Any, folder: Path, *others: Any) -> dict[str, Any]:
        got.append(others[-2:])
        (folder / CHECKPOINT).mkdir()
        (folder / "cell.json").touch()
        return {"interrupted": False}

    monkeypatch.setattr(workspace, "open_lab", lab)
    monkeypatch.setattr(workspace, "measure", measure)
    return got


@pytest.mark.parametrize("keep", [False, True])
def test_large_files_are_deleted_after_one_run_and_after_a_series(tmp_path: Path, got: list[Any], keep: bool) -> None:
    run_one(CELL, Workspace(tmp_path / "one", keep=keep))
    with open_series([CELL], Results(tmp_path, "name"), Workspace(tmp_path / "all", keep=keep)) as (run, _):
        run(CELL, "title", False)
    runs = {tmp_path / "one", tmp_path / "all" / "cells" / "001"}
    assert {path.parent for path in tmp_path.rglob("cell.json")} == runs
    assert {path.parent for path in tmp_path.rglob(CHECKPOINT)} == (runs if keep else set())
    assert {path.parent for path in tmp_path.rglob("kafka")} == (
        {tmp_path / "one", tmp_path / "all"} if keep else set()
    )


def test_the_servers_and_the_engine_are_those_of_the_workspace(tmp_path: Path, got: list[Any]) -> None:
    during = lambda _pipeline: None  # noqa: E731
    run_one(CELL, Workspace(tmp_path / "work", start_timeout_s=7.0, engine=lambda *_: SPARK), during)
    assert got == [(None, {"kafka"}, 7.0), (SPARK, during)]
