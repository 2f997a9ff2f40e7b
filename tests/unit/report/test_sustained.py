"""The search for the highest sustained rate, and the conditions of sustaining a rate."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebench.audit.verdict import NOT_FINISHED
from oncebench.commands.sustain import _Probes
from oncebench.errors import UserError
from oncebench.experiments.rate_search import Found, NoAnswer, of_three, search
from oncebench.report.comparisons.sustained import limits, markdown, unanswered, why_not
from oncebench.scenario.cell import Cell
from tests.unit.report.test_tables import report

LOWEST, HIGHEST = 100.0, 100_000.0


@given(st.floats(LOWEST, HIGHEST), st.floats(LOWEST, HIGHEST), st.floats(0.01, 1.0))
def test_the_limit_is_between_two_tried_rates(limit: float, start: float, precision: float) -> None:
    asked: list[float] = []

    def keeps_up(rate: float) -> bool:
        asked.append(rate)
        return rate <= limit

    found = search(keeps_up, start, LOWEST, HIGHEST, precision)
    assert found.kept <= limit
    assert found.kept in asked
    if found.lost is None:
        assert found.kept == HIGHEST
    else:
        assert limit < found.lost <= found.kept * (1 + precision)
        assert found.lost in asked
    assert len(asked) == len(set(asked))
    assert all(LOWEST <= rate <= HIGHEST for rate in asked)


def test_a_search_never_goes_below_the_lowest_rate() -> None:
    assert search(lambda _: False, 1000.0, LOWEST, HIGHEST, 0.1) == Found(0.0, LOWEST)


@pytest.mark.parametrize(
    ("says", "believed", "asked"),
    [([True], True, 1), ([False, False], False, 2), ([False, True, True], True, 3), ([False, True, False], False, 3)],
)
def test_a_rate_fails_if_two_of_three_probes_fail(says: list[bool], believed: bool, asked: int) -> None:
    answers = iter(says)
    assert of_three(lambda _rate: next(answers))(1000.0) is believed
    assert list(answers) == []
    assert len(says) == asked


def steady(**changes: float | None) -> dict[str, Any]:
    return report(steadiness={"lag_slope": 0.001, "latency_rise": 0.05, **changes})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lag_slope": 0.01}, "the lag grew by 1.0% of the load"),
        ({"latency_rise": 0.25}, "latency rose by 25%"),
        ({"lag_slope": 0.01, "latency_rise": None}, "the lag grew by 1.0% of the load"),
        ({"lag_slope": 0.01, "latency_rise": 0.25}, "the lag grew by 1.0% of the load"),
        ({"lag_slope": None}, "it was too short to tell"),
        ({"latency_rise": None}, "it was too short to tell"),
    ],
)
def test_falling_behind_has_a_reason(changes: dict[str, Any], why: str) -> None:
    assert list(why_not(steady(**changes))) == [why]


LATE = {"generator": {"lateness_ms": {"p99": 101.0}}}


def test_a_small_growth_that_doubles_the_latency_is_a_backlog() -> None:
    behind = steady(lag_slope=0.005, lag_slope_error=0.002, latency_rise=1.5)
    assert list(why_not(behind)) == ["the lag grew by 0.5% of the load, and latency rose by 150%"]
    assert list(why_not(steady(lag_slope=0.005, lag_slope_error=0.003, latency_rise=1.5))) == ["latency rose by 150%"]
    # Behind a late generator each latency is longer, and the pipeline may keep up.
    assert str(unanswered(behind | LATE)).startswith("the generator was 101 ms late")


def test_a_late_generator_hides_no_pipeline_that_falls_behind() -> None:
    behind = steady(lag_slope=0.5) | LATE
    assert (unanswered(behind), list(why_not(behind))) == (None, ["the lag grew by 50.0% of the load"])


def test_keeping_up_with_a_late_generator_is_no_answer() -> None:
    assert str(unanswered(steady() | LATE)).startswith("the generator was 101 ms late")
    assert unanswered(steady()) is None


CLOCK = (
    "the clock of the run's machine was set forward by 0.006 s during the run, or the machine slept. So the times of "
    "the run are not known. Run it again while the machine is awake and nothing sets its clock"
)
NO_TIMES = {"lag_slope": None, "lag_slope_error": None, "latency_rise": None}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"reasons": [CLOCK], "clock_moved_us": 6000, "steadiness": NO_TIMES},
         "its verdict is unknown: the clock of the run's machine was set forward by 0.006 s during the run, or the "
         "machine slept"),
        ({"reasons": ["the observer died"]}, "its verdict is unknown: the observer died"),
        ({"reasons": ["PEND: 200, an answer is missing"], "anomalies": {"PEND": 200}}, None),
        ({"reasons": [f"{NOT_FINISHED}. The pipeline was alive"]}, None),
        ({"not_finished": NOT_FINISHED}, None),
        ({"reasons": ["only 80.0% of the events were sent"], "steadiness": NO_TIMES | {"lag_slope": 0.5}}, None),
    ],
)  # fmt: skip
def test_a_probe_without_a_verdict_is_a_failed_rate_only_if_the_pipeline_was_too_slow(
    changes: dict[str, Any], why: str | None
) -> None:
    found = steady() | {"verdict": "unknown"} | changes
    assert unanswered(found) == why
    assert "its verdict is unknown" in list(why_not(found))
    probes = [probe(1000, 0.0), *(probe(2000, 0.0, verdict="unknown", **changes) for _ in range(2))]
    assert found_limits(*probes) == [(1000, None if why else 2000, 3)]


def test_a_rate_without_an_answer_ends_the_search() -> None:
    def keeps_up(rate: float) -> bool:
        if rate > 3000:
            raise NoAnswer("late")
        return True

    assert search(keeps_up, 1000.0, LOWEST, HIGHEST, 0.1) == Found(2000.0, None, "no answer at 4,000 events/s: late")


def test_a_shrinking_lag_keeps_up() -> None:
    assert list(why_not(steady())) == []
    assert list(why_not(steady(lag_slope=-0.2, latency_rise=-0.5))) == []
    assert list(why_not(steady() | {"verdict": "broken"})) == ["its verdict is broken"]


def test_a_probe_that_is_too_short_is_not_a_failed_rate() -> None:
    cell = Cell("kafka", "exactly-once", "two-phase")
    found: list[dict[str, Any]] = []
    short = _Probes(lambda *_: steady(lag_slope=None, latency_rise=None), threading.Event(), cell, 12.0, found)
    with pytest.raises(UserError, match="Give a longer --probe"):
        short.keeps_up(300.0)
    behind = _Probes(lambda *_: steady(lag_slope=0.5), threading.Event(), cell, 12.0, found)
    assert not behind.keeps_up(300.0)
    assert len(found) == 2


def probe(rate: float, lag_slope: float | None, **changes: Any) -> dict[str, Any]:
    of = {"config": {"rate": rate, "sessions": round(rate / 5), "sink": "kafka"}, "probe": True, "series": "sustain-1"}
    return steady(lag_slope=lag_slope, latency_rise=None if lag_slope is None else 0.0) | of | changes


def found_limits(*probes: dict[str, Any]) -> list[tuple[float | None, float | None, int]]:
    return [(each.kept, each.lost, each.probes) for each in limits(probes)]


@pytest.mark.parametrize(
    ("slopes", "found"),
    [
        ((0.0,), (2000, None)),
        ((0.5, 0.5), (1000, 2000)),
        ((0.5, 0.0, 0.5), (1000, 2000)),
        ((0.5, 0.0, 0.0), (2000, None)),
        ((0.5,), (1000, None)),  # the search was cut there: one no is no answer
        ((0.5, 0.0), (1000, None)),
        ((0.5, None), (1000, None)),
    ],
)
def test_an_interrupted_search_decides_only_what_it_measured(
    slopes: tuple[float | None, ...], found: tuple[float | None, ...]
) -> None:
    tries = (probe(1000, 0.0), *(probe(2000, slope) for slope in slopes))
    assert found_limits(*tries) == [(*found, len(tries))]


def test_a_rate_above_a_failed_rate_does_not_count() -> None:
    assert found_limits(probe(1000, 0.5), probe(1000, 0.5), probe(2000, 0.0)) == [(None, 1000, 3)]


def test_a_limit_with_one_known_side_is_open() -> None:
    assert "| 1,000 or more           | -        | -       | 1      |" in markdown([probe(1000, 0.0)])
    lost = markdown([probe(1000, 0.5), probe(1000, 0.5)])
    assert "| none that was tried     | 1,000    | the lag grew by 50.0% of the load |" in lost
    assert (
        "| ?                       | ?        | no probe gave an answer (at 1,000: it was too short to tell) | 1 "
        in markdown([probe(1000, None)])
    )


def test_machines_and_series_are_separate_searches() -> None:
    other = {"cpu": "another", "cores": 2}
    there, again = probe(2000, 0.0, environment=other), probe(4000, 0.0, series="sustain-2")
    assert found_limits(probe(1000, 0.0), there, probe(500, 0.0, probe=False)) == [(1000, None, 1), (2000, None, 1)]
    assert "machine another, 2 cores" in markdown([probe(1000, 0.0), there])
    assert found_limits(probe(1000, 0.0), again) == [(1000, None, 1), (4000, None, 1)]
    assert "| sustain-2 | 4,000 or more " in markdown([probe(1000, 0.0), again])
    assert markdown([probe(500, 0.0, probe=False)]) == ""


def test_limits_have_the_order_of_all_tables() -> None:
    ways = [("postgres", "at-most-once"), ("kafka", "exactly-once"), ("kafka", "at-least-once")]
    cells = [{**report()["cell"], "sink": sink, "guarantee": guarantee} for sink, guarantee in ways]
    found = limits(probe(1000, 0.0, cell=cell) for cell in cells)
    assert [(each.setting.sink, each.variant[0]) for each in found] == [*reversed(ways[1:]), ways[0]]


def test_a_damaged_probe_decides_nothing() -> None:
    damaged = probe(2000, 0.0, steadiness=None), probe(4000, 0.0, config={})
    assert found_limits(probe(1000, 0.0), *damaged) == [(1000, None, 2)]


def test_a_probe_of_a_flat_out_load_decides_nothing() -> None:
    flat_out = probe(2000, 0.0, config={"rate": "max", "sink": "kafka"})
    assert found_limits(probe(1000, 0.0), flat_out) == [(1000, None, 2)]


def test_an_interrupted_probe_decides_nothing() -> None:
    assert found_limits(probe(1000, 0.0), probe(2000, 0.5, interrupted=True)) == [(1000, None, 1)]
