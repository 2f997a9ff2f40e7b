"""A series of cells: a failed cell ends alone, an interruption ends the series."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.errors import PipelineError
from oncebench.errors import Interrupted, UserError
from oncebench.experiments import series, workspace
from oncebench.experiments.workspace import Workspace
from oncebench.report.results import Results
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.rounds import in_rounds

CELLS = [Cell("kafka", "exactly-once", "two-phase", seed=seed) for seed in (1, 2, 3)]


@contextmanager
def no_lab(*_: Any) -> Iterator[None]:
    yield


def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: Exception, reported: list[int] | None) -> list[int]:
    """Runs three cells, the second fails; returns the seeds of the reports."""

    def pretend(cell: Cell, *_: Any) -> dict[str, Any]:
        if cell.seed == 2:
            raise second
        return {"seed": cell.seed, "interrupted": False}

    monkeypatch.setattr(workspace, "measure", pretend)
    monkeypatch.setattr(workspace, "open_lab", no_lab)
    failed = None if reported is None else lambda cell, _error: reported.append(cell.seed)
    results = Results(tmp_path / "results", "name")
    return [report["seed"] for report in series.run_series(CELLS, results, Workspace(tmp_path / "work"), failed)]


@pytest.mark.parametrize("error", [UserError("no room"), PipelineError("a table"), OSError("a socket")])
def test_a_failed_cell_is_reported_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    reported: list[int] = []
    assert ran(tmp_path, monkeypatch, error, reported) == [1, 3]
    assert reported == [2]


def test_a_failed_cell_ends_a_series_without_a_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no room"):
        ran(tmp_path, monkeypatch, UserError("no room"), None)


def test_an_interruption_ends_the_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[int] = []
    with pytest.raises(UserError):
        ran(tmp_path, monkeypatch, Interrupted("interrupted"), reported)
    assert reported == []


def test_a_report_names_its_series_and_marks_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "measure", lambda cell, *_: {"seed": cell.seed, "interrupted": False})
    monkeypatch.setattr(workspace, "open_lab", no_lab)
    results = Results(tmp_path / "results", "name")
    with series.open_series(CELLS, results, Workspace(tmp_path / "work")) as (run, _):
        made = [run(CELLS[0], "title", False), run(CELLS[1], "title", True)]
    assert [(report["series"], report.get("probe")) for report in made] == [("name", None), ("name", True)]
    assert [json.loads(line) for line in results.runs.read_text().splitlines()] == made


def test_the_duration_of_a_series_includes_the_shape_of_each_load() -> None:
    even = Cell("kafka", "exactly-once", "two-phase", rate=1000.0, sessions=100)
    assert even.load_s == pytest.approx(10)
    assert replace(even, shape="ramp:0").load_s == pytest.approx(20)
    assert replace(even, shape="burst:10000:1:2").load_s == pytest.approx(1.9)
    assert replace(even, rate="max").load_s == 0
    assert series.at_least_s([replace(even, shape="ramp:0")]) == pytest.approx(20 + series.RUN_S)


def test_the_duration_of_a_flat_out_series_grows_with_its_events() -> None:
    """The published price series took 36 s per run."""
    cells = in_rounds(PROFILES["price"].select_cells(None), 10)
    assert len(cells) == 40
    assert series.at_least_s(cells) / 60 == pytest.approx(24, abs=1)
    short = [replace(cell, sessions=300) for cell in cells]
    assert series.at_least_s(short) == pytest.approx(40 * series.RUN_S, rel=0.05)


def test_a_series_estimates_the_time_left() -> None:
    began = series.time.monotonic() - 600.0
    assert series.time_left(0, 10, began) == ""
    assert series.time_left(5, 10, began) == " (10 min left)"
    assert series.time_left(10, 10, began) == ""
