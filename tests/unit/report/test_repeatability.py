"""Two series agree if each median is in the other's interval."""

from __future__ import annotations

import random
import time
from itertools import combinations, permutations
from math import factorial
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
import pytest
import scipy
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.report.comparisons.paired import Difference, Setting, median_interval, settings
from oncebench.report.comparisons.repeatability import (
    RepeatedRatio,
    mann_whitney_p,
    noise_floor,
    noise_markdown,
    repeated_markdown,
    repeated_ratios,
    repetition_interval,
)
from oncebench.report.measures.metrics import BY_NAME
from tests import ROOT
from tests.unit.report.test_paired import OF, rounds

BATCH = BY_NAME["batch_ms"]


def series(*batches_ms: float) -> list[dict[str, Any]]:
    """At-least-once takes 100, 200, ... ms a batch, round by round, exactly-once so much more."""
    return rounds(*batches_ms)


@pytest.mark.parametrize(
    ("second", "agrees"),
    [
        ((8.0, 16.0, 24.0, 32.0, 40.0), True),  # 1.08 each: in 1.06 to 1.10
        ((6.0, 18.0, 30.0, 36.0, 45.0), True),
        ((12.0, 26.0, 39.0, 52.0, 65.0), False),  # above
        ((6.0, 12.0, 18.0, 24.0, 30.0), False),  # 1.06 each: within, but the other is not within it
        ((4.0, 8.0, 12.0, 16.0, 20.0), False),  # below
    ],
)
def test_series_agree_if_each_median_is_in_the_others_interval(second: tuple[float, ...], agrees: bool) -> None:
    first = series(8.0, 12.0, 30.0, 32.0, 40.0)  # 1.08, 1.06, 1.10, 1.08, 1.08
    (found,) = repeated_ratios(first, series(*second), [BATCH])
    (other,) = repeated_ratios(series(*second), first, [BATCH])
    assert (found.variant, found.metric) == (OF, BATCH)
    assert found.agrees == other.agrees
    assert found.agrees is agrees


def test_the_repetition_interval_is_wider_by_root_two() -> None:
    low, high = repetition_interval(Difference(2.0, 1.0, 4.0, ()))
    assert (low, high) == (pytest.approx(2 / 2**2**0.5), pytest.approx(2 * 2**2**0.5))
    assert repetition_interval(Difference(1.0, 1.0, 1.0, ())) == (1.0, 1.0)


def test_nine_in_ten_series_of_the_same_thing_repeat() -> None:
    draw = np.random.default_rng(1)

    def one() -> Difference:
        return median_interval(np.exp(draw.normal(0, 0.1, 5)).tolist())

    repeated = sum(RepeatedRatio(Setting("kafka", "{}"), OF, BATCH, one(), one()).repeats for _ in range(400))
    assert 0.88 <= repeated / 400 <= 0.96


@pytest.mark.parametrize(
    ("one", "other", "p"),  # p as scipy.stats.mannwhitneyu(one, other, method="exact") has it
    [
        ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), 0.1),
        ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0), 2 / 70),
        ((5.0, 6.0, 7.0, 8.0), (1.0, 2.0, 3.0, 4.0), 2 / 70),
        ((1.0, 2.0, 3.0, 6.0, 4.5), (4.0, 5.0, 7.0, 8.0, 9.0), 14 / 252),
        ((1.0, 1.0), (1.0, 1.0), 1.0),
    ],
)
def test_the_rank_test_is_exact(one: tuple[float, ...], other: tuple[float, ...], p: float) -> None:
    assert mann_whitney_p(one, other) == pytest.approx(p)


def one_by_one(one: list[float], other: list[float]) -> float:
    """The same p by full enumeration of the samples."""
    values = [*one, *other]

    def off(mine: tuple[int, ...]) -> int:
        theirs = [values[at] for at in range(len(values)) if at not in mine]
        return abs(sum((values[at] > each) - (values[at] < each) for at in mine for each in theirs))

    ways = [off(mine) for mine in combinations(range(len(values)), len(one))]
    return sum(each >= ways[0] for each in ways) / len(ways)


@pytest.mark.parametrize(("sizes", "kinds"), [((8, 8), 1000), ((8, 8), 5), ((3, 7), 6), ((6, 4), 1000), ((1, 5), 3)])
def test_the_rank_test_equals_full_enumeration(sizes: tuple[int, int], kinds: int) -> None:
    drawn = random.Random(kinds)
    one, other = (
        [float(drawn.randrange(kinds) + shift) for _ in range(n)] for n, shift in zip(sizes, (0, 1), strict=True)
    )
    assert mann_whitney_p(one, other) == pytest.approx(one_by_one(one, other))


def test_the_rank_test_equals_that_of_scipy_where_no_values_are_equal() -> None:
    drawn = random.Random(3)
    for sizes in ((3, 3), (5, 5), (4, 9), (12, 12)):
        one, other = ([drawn.gauss(0, 1) for _ in range(n)] for n in sizes)
        exact = scipy.stats.mannwhitneyu(one, other, method="exact").pvalue
        assert mann_whitney_p(one, other) == pytest.approx(exact)


def test_twelve_rounds_against_twelve_take_less_than_a_second() -> None:
    one, other = [float(each) for each in range(12)], [each + 3.5 for each in range(12)]
    started = time.process_time()  # other processes do not count
    p = mann_whitney_p(one, other)
    assert time.process_time() - started < 1.0
    above = sum(mine > theirs for mine in one for theirs in other)
    z = (abs(above - 72) - 0.5) / (12 * 12 * 25 / 12) ** 0.5
    assert p == pytest.approx(2 * (1 - NormalDist().cdf(z)), rel=0.05)


def test_settings_of_one_sink_have_a_column() -> None:
    def both(*batches_ms: float) -> list[dict[str, Any]]:
        return [each | {"config": {"trigger_ms": trigger}} for trigger in (1000, 500) for each in series(*batches_ms)]

    noise = [line.split("|")[4].strip() for line in noise_markdown(both(*[0.0] * 5), [BATCH]).splitlines()]
    assert noise == ["setting", "-" * len("trigger 1,000 ms"), *["trigger 500 ms"] * 2, *["trigger 1,000 ms"] * 2]
    found = list(repeated_ratios(both(*[8.0] * 5), both(*[90.0] * 5), [BATCH]))
    apart = repeated_markdown(found).split("\n\n")[1].splitlines()
    assert [line.split("|")[4].strip() for line in apart][2:] == ["trigger 1,000 ms", "trigger 500 ms"]


def test_a_ratio_in_one_series_only_is_not_compared() -> None:
    elsewhere = [report | {"cell": report["cell"] | {"sink": "postgres"}} for report in series(8.0)]
    assert list(repeated_ratios(series(8.0), elsewhere, [BATCH])) == []
    assert repeated_markdown([]) == ""


@pytest.mark.parametrize("alone", [0, 1])
def test_a_ratio_with_too_few_rounds_is_not_compared(alone: int) -> None:
    both = [series(*[8.0] * 5), series(*[8.0] * 5)]
    assert list(repeated_ratios(*both, [BATCH]))
    both[alone] = series(*[8.0] * 4)
    assert list(repeated_ratios(*both, [BATCH])) == []


def test_the_noise_floor_divides_each_round_by_the_previous() -> None:
    (found,) = settings(series(*[0.0] * 5)).values()  # 100, 200, 300, 400 and 500 ms
    floor = noise_floor(found, BATCH, OF)
    assert floor is not None
    assert floor.rounds == (2.0, 1.5, 4 / 3, 1.25)
    (few,) = settings(series(*[0.0] * 4)).values()
    assert noise_floor(few, BATCH, OF) is None
    assert noise_markdown(series(*[0.0] * 4), [BATCH]) == ""


def test_the_noise_floor_of_one_series_contains_1_as_often_as_the_page_says() -> None:
    def contains_1(order: tuple[float, ...]) -> bool:  # without a drift every order of five rounds is as likely
        (found,) = settings(series(*(value - 100.0 * (at + 1) for at, value in enumerate(order)))).values()
        floor = noise_floor(found, BATCH, OF)
        assert floor is not None
        return floor.low <= 1.0 <= floor.high

    share = fmean(map(contains_1, permutations((800.0, 870.0, 960.0, 1_010.0, 1_200.0))))
    assert share == pytest.approx(1 - 2 / factorial(5))
    assert f"it contains 1 in {share:.1%} ".replace("%", " %") in (ROOT / "docs" / "reading_the_tables.md").read_text()


@pytest.mark.parametrize("named", [True, False])
def test_the_noise_floor_stays_within_a_series(named: bool) -> None:
    both = [series(0.0, 0.0, 0.0), series(0.0, 0.0, 0.0)]
    if named:
        both = [[each | {"series": name} for each in of] for name, of in zip("ab", both, strict=True)]
    (found,) = settings([*both[0], *both[1]]).values()
    floor = noise_floor(found, BATCH, OF)
    assert floor is not None
    assert floor.rounds == (2.0, 1.5, 2.0, 1.5)


def test_a_comparison_lists_the_ratios_that_disagree() -> None:
    first = series(8.0, 16.0, 24.0, 32.0, 40.0)
    found = list(repeated_ratios(first, series(9.0, 15.0, 27.0, 30.0, 45.0), [BATCH]))
    counts, apart = repeated_markdown(found).split("\n\n")
    assert counts == (
        "| metric   | ratios | agree  | repeat   | differ |\n"
        "| -------- | ------ | ------ | -------- | ------ |\n"
        "| batch ms | 1      | 0      | 1        | 0      |\n"
        "| all      | 1      | 0 (0%) | 1 (100%) | 0 (0%) |"
    )
    heading, _, only = ([cell.strip() for cell in line.strip("|").split("|")] for line in apart.splitlines())
    assert heading == ["sink", "guarantee", "variant", "metric", "first", "second", "repeats", "differs"]
    both = ["1.08x (1.08 to 1.08)", "1.09x (1.07 to 1.09)"]
    assert only == ["kafka", "exactly-once", "two-phase", "batch ms", *both, "yes", ""]
    found = list(repeated_ratios(first, series(30.0, 60.0, 90.0, 120.0, 150.0), [BATCH]))
    assert repeated_markdown(found).splitlines()[2:4] == [
        "| batch ms | 1      | 0      | 0      | 1        |",
        "| all      | 1      | 0 (0%) | 0 (0%) | 1 (100%) |",
    ]
    assert repeated_markdown(found).splitlines()[-1].endswith("| yes     |")
    assert noise_markdown(first, [BATCH]).splitlines()[-1].endswith("| 1.25 to 2.00 |")


def test_against_excludes_other_outputs() -> None:
    refused = CliRunner().invoke(cli, ["table", "--against", "x", "--csv"])
    assert "neither --csv nor --publish" in str(refused.exception)
