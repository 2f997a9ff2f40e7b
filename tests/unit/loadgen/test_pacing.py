"""The shapes of a load: exact rates, times that never decrease, and helpful errors."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.errors import ConfigError
from loadgen.pacing import AtOnce, Burst, Constant, Ramp, Shape, parse_rate, parse_shape, sessions_for

RATES = st.floats(1.0, 500_000.0)
SHAPES = st.one_of(
    st.builds(Constant, RATES),
    st.builds(Ramp, st.one_of(st.just(0.0), RATES), RATES, st.floats(0.5, 600.0)),
    st.builds(lambda r, p, on, off: Burst(r, p, on, on + off), RATES, RATES, st.floats(0.1, 20), st.floats(0.1, 60)),
)


def due_s(shape: Shape, events: int) -> np.ndarray:
    return shape.inverse(np.arange(events, dtype=np.float64))


def events_between(times_s: np.ndarray, start_s: float, end_s: float) -> int:
    return int(((times_s >= start_s) & (times_s < end_s)).sum())


@given(SHAPES, st.integers(0, 2_000_000))
def test_inverse_undoes_cumulative(shape: Shape, count: int) -> None:
    counts = np.array([float(count)])
    assert shape.cumulative(shape.inverse(counts))[0] == pytest.approx(count, rel=1e-9, abs=1e-5)


@given(SHAPES)
def test_later_events_are_never_due_earlier(shape: Shape) -> None:
    times = due_s(shape, 20_000)
    assert times[0] == 0.0
    assert (np.diff(times) >= -1e-9).all()


def test_a_constant_rate_is_the_same_in_every_tenth_of_a_second() -> None:
    times = due_s(parse_shape("constant", 2_000, 10_000), 10_000)
    counts = [events_between(times, tenth / 10 - 1e-7, (tenth + 1) / 10 - 1e-7) for tenth in range(50)]
    assert counts == [200] * 50


def test_a_ramp_goes_evenly_from_its_first_rate_to_the_rate() -> None:
    shape = parse_shape("ramp:1000", 3_000, 20_000)
    times = due_s(shape, 20_000)
    counts = [events_between(times, second, second + 1) for second in range(10)]
    assert counts == pytest.approx([1_100 + 200 * second for second in range(10)], abs=1)
    assert times[-1] == pytest.approx(10.0, abs=0.001)


def test_a_ramp_may_begin_at_zero_and_may_go_down() -> None:
    up, down = (
        due_s(parse_shape("ramp:0", 1_000, 5_000), 5_000),
        due_s(parse_shape("ramp:1000", 1, 5_000), 5_000),
    )
    assert events_between(up, 0, 1) == pytest.approx(50, abs=1)
    assert events_between(up, 9, 10) == pytest.approx(950, abs=1)
    assert events_between(down, 0, 1) > 900
    assert events_between(down, 9, 10) < 100


def test_a_burst_has_its_peak_at_the_end_of_every_period() -> None:
    shape = parse_shape("burst:5000:1:4", 1_000, 24_000)
    times = due_s(shape, 24_000)
    counts = [events_between(times, second - 1e-7, second + 1 - 1e-7) for second in range(12)]
    assert counts == [1_000, 1_000, 1_000, 5_000] * 3


def test_at_rate_max_everything_is_due_at_once() -> None:
    shape = parse_shape("constant", "max", 1_000)
    assert isinstance(shape, AtOnce)
    assert not due_s(shape, 1_000).any()


@pytest.mark.parametrize("rate", [0, -1, -0.5, math.nan, math.inf, -math.inf, 1.1e9, 1e300, 10**400])
def test_a_rate_must_be_finite_and_above_zero(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"rate: .{1,50} is not possible; give a number above 0 and up to 1e\+09, or"):
        parse_rate(rate)


@pytest.mark.parametrize("rate", ["fast", "1000", None, True, [1]])
def test_a_rate_must_be_a_number_or_max(rate: object) -> None:
    with pytest.raises(ConfigError, match='neither a number of events per second nor "max"'):
        parse_rate(rate)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "is not known; choose from: constant"),
        ("sine", "is not known; choose from: constant"),
        ("constant:5", "must be written constant"),
        ("ramp", "must be written ramp:FROM_RATE"),
        ("ramp:slow", "FROM_RATE is 'slow', which is not a number"),
        ("ramp:-1", "FROM_RATE is -1; it must be"),
        ("ramp:nan", "FROM_RATE is nan; it must be"),
        ("ramp:1e300", "FROM_RATE is 1e300; it must be a number of 0 or more, and up to 1e+09"),
        ("burst:1e308:1:2", "PEAK_RATE is 1e308; it must be a number above 0, and up to 1e+09"),
        ("burst:1000:1", "must be written burst:PEAK_RATE:ON_S:EVERY_S"),
        ("burst:0:1:4", "PEAK_RATE is 0; it must be"),
        ("burst:1000:inf:4", "ON_S is inf; it must be"),
        ("burst:1000:4:4", "ON_S must be shorter than EVERY_S"),
    ],
)
def test_an_invalid_shape_is_refused_with_a_remedy(spec: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_shape(spec, 100, 1_000)
    assert said in str(error.value)
    assert repr(spec) in str(error.value)


def test_a_load_that_ends_before_its_first_burst_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ends after 1\.0 s, before its first burst at 9\.0 s"):
        parse_shape("burst:5000:1:10", 1_000, 1_000)


def test_rate_max_takes_no_shape() -> None:
    with pytest.raises(ConfigError, match="needs a rate"):
        parse_shape("ramp:10", "max", 1_000)


def test_a_load_of_years_is_refused() -> None:
    with pytest.raises(ConfigError, match="would take 1157 days; raise the rate"):
        parse_shape("constant", 0.001, 100_000)


@pytest.mark.parametrize("spec", ["constant", "ramp:500", "burst:9000:1:5"])
def test_sessions_for_a_duration_fill_that_duration(spec: str) -> None:
    sessions = sessions_for(spec, 3_000, 20.0)
    shape = parse_shape(spec, 3_000, sessions * 100)
    assert float(shape.inverse(np.array([sessions * 100.0]))[0]) == pytest.approx(20.0, rel=0.01)


def test_a_duration_needs_a_rate_and_a_length() -> None:
    with pytest.raises(ConfigError, match="has no duration of its own; give the number of sessions"):
        sessions_for("constant", "max", 10)
    with pytest.raises(ConfigError, match="duration: 0 s is not possible"):
        sessions_for("constant", 100, 0)
    with pytest.raises(ConfigError, match=r"duration: 1e\+09 s is not possible; .* up to 31622400"):
        sessions_for("constant", 100, 1e9)
    assert sessions_for("constant", 10, 1) == 1
