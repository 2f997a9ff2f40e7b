"""`oncebench sustain`: searches rates, and prints results after errors too."""

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
from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, UserError
from oncebench.report.measures.timeline import FEWEST_STEPS
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES
from tests.unit.report.test_tables import report

WORDS = ("sustain", "--only", "exactly-once", "--repeat", "2")


LIMIT = 1000.0
# A generator that was late for every probe.
LATE = {"generator": {"lateness_ms": {"p99": 900.0}}}


class Pipelines:
    """Replaces runs: a variant sustains its limit and no more.

    `ends`: the number of runs before a Ctrl-C. `fails`: the error that a variant's runs raise. `looks`: fields of the
    report of a variant's probes; `round_looks`: of rounds.
    """

    def __init__(self) -> None:
        self.ran: list[Cell] = []
        self.rounds: list[Cell] = []
        self.limits: dict[str, float] = {}
        self.fails: dict[str, Exception] = {}
        self.looks: dict[str, dict[str, Any]] = {}
        self.round_looks: dict[str, Any] = {}
        self.ends: int | None = None
        self.cut = threading.Event()

    @contextmanager
    def series(self, _cells: Any, results: Any, *_: Any) -> Iterator[Any]:
        def run(cell: Cell, _title: str, probe: bool) -> dict[str, Any]:
            self.ran.append(cell)
            self.rounds += [] if probe else [cell]
            if len(self.ran) == self.ends:
                self.cut.set()
            if cell.variant in self.fails:
                raise self.fails[cell.variant]
            limit = self.limits.get(cell.variant, self.limits.get(cell.sink, LIMIT))
            assert isinstance(cell.rate, int | float)
            behind = 0.0 if cell.rate <= limit else 0.5
            configuration = {"sink": cell.sink, "guarantee": cell.guarantee, "variant": cell.variant}
            made = report(
                seed=cell.seed,
                cell={**configuration, "faults": [], "random_kills": 0},
                interrupted=self.cut.is_set(),
                config=cell.as_json(),
                steadiness={"lag_slope": behind, "lag_slope_error": 0.0, "latency_rise": 0.0},
                **({"probe": True} if probe else {}),
            )
            made |= self.looks.get(cell.variant, {}) if probe else self.round_looks
            results.add(made)
            return made

        yield run, self.cut


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipelines:
    made = Pipelines()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sustain, "open_series", made.series)
    return made


def table(text: str) -> dict[str, list[str]]:
    """The table of rates by variant: highest kept, lowest lost, reason, probes."""
    first = text.split("\n\n", maxsplit=1)[0]
    rows = [[word.strip() for word in line.strip("| ").split("|")] for line in first.splitlines()]
    return {row[2]: row[3:] for row in rows[2:]}


def test_the_table_has_both_rates_around_the_limit_and_the_reason(pipelines: Pipelines) -> None:
    done = CliRunner().invoke(cli, (*WORDS[:-1], "0"))
    assert done.exit_code == 0, done.output
    kept, lost, because, probes = table(done.stdout)["two-phase"]
    assert (kept, lost, because) == ("1,000", "1,091", "the lag grew by 50.0% of the load")
    assert int(probes) == sum(cell.variant == "two-phase" for cell in pipelines.ran)


def test_the_estimate_comes_before_the_first_run(pipelines: Pipelines) -> None:
    done = CliRunner().invoke(cli, WORDS)
    # 24 s of load and 16 s more for each of 2 * (5 + 2) runs
    assert done.stderr.startswith("2 searches of usually 5 rates or more, then 2 rounds: 9 min or more\n")
    assert len(pipelines.ran) >= 2 * (5 + 2)


@pytest.mark.parametrize(("rounds", "text"), [("0", "more: "), ("1", "more, then 1 round: ")])
def test_the_estimate_names_the_rounds_that_run(rounds: str, text: str, pipelines: Pipelines) -> None:
    done = CliRunner().invoke(cli, [*WORDS, "--repeat", rounds])
    assert done.stderr.startswith(f"2 searches of usually 5 rates or {text}")


def test_interrupted_rounds_print_finished_rounds(pipelines: Pipelines) -> None:
    CliRunner().invoke(cli, (*WORDS[:-1], "0"))
    pipelines.ends, pipelines.ran = len(pipelines.ran) + 3, []
    done = CliRunner().invoke(cli, WORDS)
    assert (str(done.exception), len(pipelines.rounds)) == ("interrupted: 2 of 4 runs done", 3)
    assert "at 750 events/s:" in done.stdout
    assert "| kafka | exactly-once | two-phase  | 1 " in done.stdout
    assert "reports results/local/runs/sustain-" in done.stderr


def test_an_interrupted_search_prints_the_rates_so_far(pipelines: Pipelines) -> None:
    pipelines.ends, pipelines.limits = 3, {"kafka": 100_000.0}
    done = CliRunner().invoke(cli, WORDS)
    assert str(done.exception).startswith("interrupted during the search for the rate of kafka exactly-once")
    assert table(done.stdout) == {"idempotent": ["4,000 or more", "-", "-", "2"]}


def test_a_probe_that_breaks_a_guarantee_exits_with_3(
    pipelines: Pipelines,
) -> None:
    pipelines.looks = {variant: {"verdict": "broken"} for variant in ("idempotent", "two-phase")}
    done = CliRunner().invoke(cli, WORDS)
    assert done.exit_code == ExitCode.BROKEN
    assert table(done.stdout)["two-phase"][:3] == ["none that was tried", "100", "its verdict is broken"]


def test_each_sink_is_compared_at_its_own_rate(pipelines: Pipelines) -> None:
    pipelines.limits = {"files-jsonl": 4000.0, "sqlite": 1000.0}
    words = ("--sink", "files-jsonl", "--sink", "sqlite", "--only", "exactly-once", "--repeat", "1")
    done = CliRunner().invoke(cli, ("sustain", *words))
    assert [cell.rate for cell in pipelines.rounds] == [3000.0, 750.0]
    assert "\nfiles-jsonl at 3,000 events/s:\n" in done.stdout
    assert "\nsqlite at 750 events/s:\n" in done.stdout


@pytest.mark.parametrize(
    ("short", "fails", "why"),
    [
        (
            {"steadiness": {"lag_slope": None, "latency_rise": None}},
            None,
            "a probe of 24 s is too short for 2,000 events/s",
        ),
        ({}, UserError("the broker died while draining"), "the broker died while draining"),
        ({}, PipelineError("the topic is gone"), "the topic is gone"),
        ({}, OSError("no space left"), "no space left"),
    ],
)
def test_a_probe_without_a_result_ends_only_its_own_search(
    pipelines: Pipelines, short: dict[str, Any], fails: Exception | None, why: str
) -> None:
    pipelines.looks, pipelines.limits = {"idempotent": short}, {"two-phase": 2000.0}
    pipelines.fails = {} if fails is None else {"idempotent": fails}
    done = CliRunner().invoke(cli, (*WORDS[:-1], "1"))
    assert ([cell.rate for cell in pipelines.rounds], done.exit_code) == ([1500.0], 1)
    assert done.stderr.count(f"kafka exactly-once idempotent, healthy: {why}") == 2  # when it happens, and at the end
    assert table(done.stdout)["two-phase"][0] == "2,000"


def test_a_failed_round_is_reported_and_the_rest_runs(pipelines: Pipelines) -> None:
    made = pipelines.series

    @contextmanager
    def series(*words: Any) -> Iterator[Any]:
        with made(*words) as (run, cut):

            def failing(cell: Cell, title: str, probe: bool) -> dict[str, Any]:
                if not probe and cell.variant == "idempotent":
                    raise UserError("it got no further")
                found: dict[str, Any] = run(cell, title, probe)
                return found

            yield failing, cut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sustain, "open_series", series)
        done = CliRunner().invoke(cli, WORDS)
    assert (len(pipelines.rounds), done.exit_code) == (2, 1)
    said = "run failed: kafka exactly-once idempotent, healthy: it got no further"
    assert done.stderr.count(said) == 4  # two rounds, each when it happens and at the end
    assert "| kafka | exactly-once | two-phase | 2 " in done.stdout


def test_a_sink_without_a_sustained_rate_is_not_compared(
    pipelines: Pipelines,
) -> None:
    pipelines.limits = {"idempotent": 0.0, "two-phase": 2000.0}
    done = CliRunner().invoke(cli, WORDS)
    assert (pipelines.rounds, done.exit_code) == ([], 0)
    assert "kafka: costs are not compared, because exactly-once idempotent sustains no rate" in done.stderr


def test_the_warm_up_is_the_published_one_and_fits_the_shortest_probe(
    pipelines: Pipelines,
) -> None:
    CliRunner().invoke(cli, WORDS)
    assert {cell.warmup_s for cell in pipelines.ran} == {PROFILES["full"].warmup_s}
    assert sustain.SHORTEST_S - PROFILES["full"].warmup_s >= FEWEST_STEPS + 3


def test_a_round_that_breaks_a_guarantee_exits_with_3(pipelines: Pipelines) -> None:
    pipelines.round_looks = {"verdict": "broken"}
    assert CliRunner().invoke(cli, WORDS).exit_code == ExitCode.BROKEN


def test_a_first_rate_without_an_answer_is_no_rate_of_0(pipelines: Pipelines) -> None:
    pipelines.limits, pipelines.looks = {"kafka": 2000.0}, {"idempotent": LATE}
    done = CliRunner().invoke(cli, (*WORDS[:-1], "1"))
    assert ([cell.rate for cell in pipelines.rounds], done.exit_code) == ([1500.0], ExitCode.ERROR)
    expected = "kafka exactly-once idempotent, healthy: no answer at 2,000 events/s: "
    assert done.stderr.count(expected) == 2 and "give a lower --start" in done.stderr
    assert "sustains 0" not in done.stderr


def test_a_step_of_the_clock_lowers_no_limit(pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each third probe has no verdict: the search tries its rate again."""
    made, no_times = pipelines.series, {"lag_slope": None, "latency_rise": None}
    stepped = {"verdict": "unknown", "reasons": ["the clock was set. Run again"], "steadiness": no_times}

    @contextmanager
    def series(*words: Any) -> Iterator[Any]:
        with made(*words) as (run, cut):

            def with_steps(cell: Cell, title: str, probe: bool) -> dict[str, Any]:
                pipelines.looks = {cell.variant: stepped} if len(pipelines.ran) % 3 == 0 else {}
                found: dict[str, Any] = run(cell, title, probe)
                return found

            yield with_steps, cut

    monkeypatch.setattr(sustain, "open_series", series)
    done = CliRunner().invoke(cli, (*WORDS[:-1], "0"))
    assert done.exit_code == 0, done.output
    assert "at 2,000 events/s: its verdict is unknown: the clock was set\n" in done.stderr
    assert table(done.stdout)["two-phase"][:3] == ["1,000", "1,091", "the lag grew by 50.0% of the load"]


def test_a_round_without_a_verdict_exits_with_1(pipelines: Pipelines) -> None:
    pipelines.round_looks = {"verdict": "unknown"}
    assert CliRunner().invoke(cli, WORDS).exit_code == ExitCode.ERROR
