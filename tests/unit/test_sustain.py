"""`oncebench sustain`: what an interruption leaves to be shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import sustain
from oncebench.errors import BROKEN, INTERRUPTED, UserError
from oncebench.run.search import Found
from tests.unit.test_tables import report

WORDS = ("sustain", "--only", "exactly-once", "--repeat", "2")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs there were; the third is interrupted. A search takes none, and always finds the same."""
    ran: list[int] = []
    cut = threading.Event()

    @contextmanager
    def series(_cells: Any, results: Any, *_: Any) -> Iterator[Any]:
        def run(cell: Any, _title: str, _probe: bool) -> dict[str, Any]:
            ran.append(cell.seed)
            if len(ran) == 3:
                cut.set()
            made = report(cell.variant, seed=cell.seed, interrupted=cut.is_set())
            results.add(made)
            return made

        yield run, cut

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sustain, "open_series", series)
    monkeypatch.setattr(sustain, "search", lambda *_: Found(1000.0, 1100.0))
    return ran


def test_rounds_that_were_interrupted_show_those_that_are_done(runs: list[int]) -> None:
    done = CliRunner().invoke(cli, WORDS)
    assert (str(done.exception), len(runs)) == ("interrupted: 2 of 4 runs done", 3)
    assert "at 750 events/s:" in done.stdout
    assert "| kafka | exactly-once | two-phase  | 1 " in done.stdout
    (file,) = Path().glob("results/local/runs/*.jsonl")
    assert f"reports {file}" in done.stderr


def test_a_search_that_was_interrupted_shows_the_rates_that_were_found(
    runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([Found(1000.0, 1100.0)])

    def search(*_: Any) -> Found:
        for each in found:
            return each
        raise UserError("interrupted", exit_code=INTERRUPTED)

    monkeypatch.setattr(sustain, "search", search)
    done = CliRunner().invoke(cli, WORDS)
    assert str(done.exception) == "interrupted"
    assert "| kafka | exactly-once | idempotent | 1,000 " in done.stdout
    assert "two-phase" not in done.stdout


def test_a_promise_that_a_probe_broke_ends_it_with_that_exit_code_and_why_stands_in_the_table(
    runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(keeps_up: Any, start: float, *_: Any) -> Found:
        assert not keeps_up(start)
        return Found(0.0, start)

    @contextmanager
    def series(*_: Any) -> Iterator[Any]:
        verdict = {"steadiness": {"lag_slope": 0.0, "latency_rise": 0.0}}
        yield (lambda cell, _title, probe: report(cell.variant, "broken", probe=probe, **verdict)), threading.Event()

    monkeypatch.setattr(sustain, "open_series", series)
    monkeypatch.setattr(sustain, "search", search)
    done = CliRunner().invoke(cli, WORDS)
    assert done.exit_code == BROKEN
    assert "| 0                       | 2,000    | its verdict is broken |" in done.stdout
