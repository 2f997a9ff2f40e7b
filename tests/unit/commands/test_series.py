"""A series of cells: a failed cell ends alone, an interruption ends the series."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncebench.commands import series
from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, UserError
from oncebench.report.results import Results
from oncebench.scenario.cell import Cell

CELLS = [Cell("kafka", "exactly-once", "two-phase", seed=seed) for seed in (1, 2, 3)]


@contextmanager
def no_lab(*_: Any) -> Iterator[None]:
    yield


def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: Exception, failures: list[int] | None) -> list[int]:
    """The seeds of the cells with a report, if the second of three cells fails."""

    def pretend(cell: Cell, *_: Any) -> dict[str, Any]:
        if cell.seed == 2:
            raise second
        return {"seed": cell.seed, "interrupted": False}

    monkeypatch.setattr(series, "measure", pretend)
    monkeypatch.setattr(series, "open_lab", no_lab)
    failed = None if failures is None else lambda cell, _error: failures.append(cell.seed)
    results = Results(tmp_path / "results", "name")
    return [report["seed"] for report in series.run_series(CELLS, results, None, tmp_path / "work", False, failed)]


@pytest.mark.parametrize("error", [UserError("no room"), PipelineError("a table"), OSError("a socket")])
def test_a_failed_cell_is_reported_and_the_rest_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failures: list[int] = []
    assert ran(tmp_path, monkeypatch, error, failures) == [1, 3]
    assert failures == [2]


def test_without_a_callback_a_failed_cell_ends_the_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no room"):
        ran(tmp_path, monkeypatch, UserError("no room"), None)


def test_an_interruption_ends_the_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[int] = []
    with pytest.raises(UserError):
        ran(tmp_path, monkeypatch, UserError("interrupted", exit_code=ExitCode.INTERRUPTED), failures)
    assert failures == []


def test_every_report_names_its_series_and_marks_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "measure", lambda cell, *_: {"seed": cell.seed, "interrupted": False})
    monkeypatch.setattr(series, "open_lab", no_lab)
    results = Results(tmp_path / "results", "name")
    with series.open_series(CELLS, results, None, tmp_path / "work", False) as (run, _):
        made = [run(CELLS[0], "title", False), run(CELLS[1], "title", True)]
    assert [(report["series"], report.get("probe")) for report in made] == [("name", None), ("name", True)]
    assert [json.loads(line) for line in results.runs.read_text().splitlines()] == made


def test_the_minimum_duration_depends_on_the_shape_of_the_load() -> None:
    even = Cell("kafka", "exactly-once", "two-phase", rate=1000.0, sessions=100)
    assert even.load_s == pytest.approx(10)
    assert replace(even, shape="ramp:0").load_s == pytest.approx(20)
    assert replace(even, shape="burst:10000:1:2").load_s == pytest.approx(1.9)
    assert replace(even, rate="max").load_s == 0
    assert series.at_least_s([replace(even, shape="ramp:0")]) == pytest.approx(20 + series.RUN_S)
