"""`oncebench sustain`: each sink at its own rate, and what is left to be shown where a search came to no end."""

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
from oncebench.profiles import PROFILES
from oncebench.reports.timeline import FEWEST_STEPS
from oncebench.run.search import Found, search
from oncebench.scenario import Cell
from tests.unit.test_tables import report

WORDS = ("sustain", "--only", "exactly-once", "--repeat", "2")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """What was run; the third is interrupted. A search takes none, and always finds the same."""
    ran: list[Cell] = []
    cut = threading.Event()

    @contextmanager
    def series(_cells: Any, results: Any, *_: Any) -> Iterator[Any]:
        def run(cell: Any, _title: str, _probe: bool) -> dict[str, Any]:
            ran.append(cell)
            if len(ran) == 3:
                cut.set()
            way = {"sink": cell.sink, "delivery": cell.delivery, "variant": cell.variant}
            cut_now = {"interrupted": cut.is_set(), "config": {"rate": cell.rate, "sink": cell.sink}}
            made = report(seed=cell.seed, cell={**way, "faults": [], "random_kills": 0}, **cut_now)
            results.add(made)
            return made

        yield run, cut

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sustain, "open_series", series)
    monkeypatch.setattr(sustain, "search", lambda *_: Found(1000.0, 1100.0))
    return ran


def test_rounds_that_were_interrupted_show_those_that_are_done(runs: list[Cell]) -> None:
    done = CliRunner().invoke(cli, WORDS)
    assert (str(done.exception), len(runs)) == ("interrupted: 2 of 4 runs done", 3)
    assert "at 750 events/s:" in done.stdout
    assert "| kafka | exactly-once | two-phase  | 1 " in done.stdout
    (file,) = Path().glob("results/local/runs/*.jsonl")
    assert f"reports {file}" in done.stderr


def test_a_search_that_was_interrupted_shows_the_rates_that_were_found(
    runs: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([Found(1000.0, 1100.0)])

    def pretend(*_: Any) -> Found:
        for each in found:
            return each
        raise UserError("interrupted", exit_code=INTERRUPTED)

    monkeypatch.setattr(sustain, "search", pretend)
    done = CliRunner().invoke(cli, WORDS)
    assert str(done.exception) == "interrupted"
    assert "| kafka | exactly-once | idempotent | 1,000 " in done.stdout
    assert "two-phase" not in done.stdout


def test_a_promise_that_a_probe_broke_ends_it_with_that_exit_code_and_why_stands_in_the_table(
    runs: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretend(keeps_up: Any, start: float, *_: Any) -> Found:
        assert not keeps_up(start)
        return Found(0.0, start)

    @contextmanager
    def series(*_: Any) -> Iterator[Any]:
        verdict = {"steadiness": {"lag_slope": 0.0, "latency_rise": 0.0}}
        yield (lambda cell, _title, probe: report(cell.variant, "broken", probe=probe, **verdict)), threading.Event()

    monkeypatch.setattr(sustain, "open_series", series)
    monkeypatch.setattr(sustain, "search", pretend)
    done = CliRunner().invoke(cli, WORDS)
    assert done.exit_code == BROKEN
    assert "| 0                       | 2,000    | its verdict is broken |" in done.stdout


def searching(monkeypatch: pytest.MonkeyPatch, kept: dict[str, float | None]) -> None:
    """Has the search of a sink's or a variant's cells find this, or a probe too short for it."""

    def pretend(keeps_up: Any, *_: Any) -> Found:
        cell = cells.pop(0)
        rate = kept.get(cell.variant, kept.get(cell.sink))
        if rate is None:
            raise sustain._TooShort("too short to tell")
        return Found(rate, rate + 100)

    cells: list[Any] = []
    made = sustain._Probes.__init__

    def noted(self: Any, run: Any, cut: Any, cell: Any, probe_s: float) -> None:
        cells.append(cell)
        made(self, run, cut, cell, probe_s)

    monkeypatch.setattr(sustain._Probes, "__init__", noted)
    monkeypatch.setattr(sustain, "search", pretend)


def test_each_sink_is_compared_at_the_rate_of_its_own_slowest(
    runs: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    searching(monkeypatch, {"files-jsonl": 4000.0, "sqlite": 1000.0})
    words = ("--sink", "files-jsonl", "--sink", "sqlite", "--only", "exactly-once", "--repeat", "1")
    done = CliRunner().invoke(cli, ("sustain", *words))
    assert [cell.rate for cell in runs] == [3000.0, 750.0]
    assert "\nfiles-jsonl at 3,000 events/s:\n" in done.stdout
    assert "\nsqlite at 750 events/s:\n" in done.stdout


def test_a_probe_that_is_too_short_ends_the_search_of_its_own_guarantee_only(
    runs: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    searching(monkeypatch, {"idempotent": None, "kafka": 2000.0})
    done = CliRunner().invoke(cli, (*WORDS[:-1], "1"))
    assert ([cell.rate for cell in runs], done.exit_code) == ([1500.0], 1)
    assert (
        "| kafka | exactly-once | idempotent | ?                       | ?        | too short to tell |" in done.stdout
    )
    assert "| kafka | exactly-once | two-phase  | 2,000 " in done.stdout


def test_a_sink_of_which_a_guarantee_keeps_up_with_nothing_is_not_compared_and_that_is_said(
    runs: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    searching(monkeypatch, {"idempotent": 0.0, "kafka": 2000.0})
    done = CliRunner().invoke(cli, WORDS)
    assert (runs, done.exit_code) == ([], 0)
    assert "kafka: costs are not compared, for exactly-once idempotent keeps up with no rate" in done.stderr


def test_what_is_compared_begins_to_count_when_the_jit_is_done_and_the_shortest_probe_can_still_be_judged(
    runs: list[Cell],
) -> None:
    CliRunner().invoke(cli, WORDS)
    assert {cell.warmup_s for cell in runs} == {PROFILES["full"].warmup_s}
    assert sustain.SHORTEST_S - PROFILES["full"].warmup_s >= FEWEST_STEPS + 3


def test_a_search_that_ended_early_tells_what_was_kept_up_with_until_then(
    runs: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = iter([[], [sustain.TOO_SHORT]])
    monkeypatch.setattr(sustain, "search", search)
    monkeypatch.setattr(sustain, "why_not", lambda _report: next(reasons))
    done = CliRunner().invoke(cli, (*WORDS, "--only", "two-phase"))
    assert "| two-phase | 2,000 or more           | ?        | a probe of 24 s is too short" in done.stdout
