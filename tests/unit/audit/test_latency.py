"""Distributions are exact, and so is what the observer's status lines say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebench.audit.python.latency import CURVE, Distribution
from oncebench.observe.observer import Status


def test_percentiles_are_measured_values_by_nearest_rank() -> None:
    values = np.arange(1000, 0, -1).astype(float)
    found = Distribution.of(values)
    assert (found.p50, found.p95, found.p99, found.p999, found.max, found.min) == (500, 950, 990, 999, 1000, 1)
    assert (found.n, found.negative) == (1000, 0)


def test_no_values_give_no_figures() -> None:
    assert Distribution.of(np.array([])).as_json() == {
        "n": 0, "unseen": 0, "p50": None, "p95": None, "p99": None, "p999": None, "max": None, "min": None,
        "negative": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("unseen", "missing"), [(0, 0), (1, 1), (2, 2), (20, 3), (100, 4), (1001, 5)])
def test_a_row_that_was_never_seen_is_later_than_every_other(unseen: int, missing: int) -> None:
    found = Distribution.of(np.arange(1.0, 1001.0), unseen)
    figures = [found.p50, found.p95, found.p99, found.p999, found.max]
    assert [figure is None for figure in figures] == [False] * (5 - missing) + [True] * missing
    assert (found.n, found.unseen, found.min) == (1000, unseen, 1.0)
    curve = Distribution.curve(np.arange(1.0, 1001.0), unseen)
    assert curve is not None
    assert (curve[-1], curve[0]) == (None if unseen else 1000.0, 1.0)
    assert dict(zip(CURVE, curve, strict=True))[99.0] == found.p99


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_every_percentile_is_the_smallest_value_that_enough_values_do_not_exceed(values: list[float]) -> None:
    found = Distribution.of(np.array(values))
    for share, figure in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99), (0.999, found.p999)):
        enough = [value for value in sorted(values) if sum(each <= value for each in values) >= share * len(values)]
        assert figure == enough[0]


def test_a_curve_has_measured_values_from_the_least_to_the_greatest() -> None:
    curve = Distribution.curve(np.arange(1000, 0, -1).astype(float))
    assert curve is not None
    assert dict(zip(CURVE, curve, strict=True))[99.0] == 990.0
    assert (curve[0], curve[-1]) == (1.0, 1000.0)
    assert Distribution.curve(np.array([])) is None


def test_a_curve_is_rounded_to_hundredths_of_a_millisecond() -> None:
    assert Distribution.curve(np.array([1.006])) == [1.01] * len(CURVE)


def test_negative_values_are_kept_and_counted() -> None:
    found = Distribution.of(np.array([-3.0, -1.0, 0.0, 0.5, 5.0]))
    assert (found.min, found.p50, found.negative) == (-3.0, 0.0, 2)


def row(ended_at: object) -> bytes:
    return json.dumps({"session_key": "k", "ended_at": ended_at}).encode()


def test_a_status_line_covers_the_last_second() -> None:
    status = Status()
    status.add([row(1_000_000), row(1_100_000)], seen_us=1_500_000)
    status.add([row(2_000_000)], seen_us=2_300_000)
    assert status.line(2_400_000) == {
        "t_us": 2_400_000, "visible": 3, "last_row_us": 2_300_000, "p50_ms": 400.0, "p99_ms": 500.0,
        "max_ended_at_us": 2_000_000,
    }  # fmt: skip
    status.add([], seen_us=2_500_000)
    assert status.line(2_600_000)["p50_ms"] == 300.0
    assert status.line(3_600_000) == {
        "t_us": 3_600_000, "visible": 3, "last_row_us": 2_300_000, "p50_ms": None, "p99_ms": None,
        "max_ended_at_us": 2_000_000,
    }  # fmt: skip


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"{}", row("x"), row(True), row(1.5)])
def test_a_row_that_can_not_be_read_is_visible_and_has_no_latency(value: bytes | None) -> None:
    status = Status()
    status.add([value], seen_us=5)
    assert (status.line(6)["visible"], status.line(6)["p50_ms"]) == (1, None)
