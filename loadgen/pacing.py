"""The shapes of a load: how many events are due by which moment.

A shape is two functions that undo each other: `cumulative(t)` is how many events are due in the first `t`
seconds, `inverse(k)` is the moment at which event number k is due. Event k gets the time `inverse(k)` and
nothing else, so the rate is exact at each moment, and the whole schedule stands before the first event is
sent (an open loop).

    constant                            `rate` all the time ramp:FROM_RATE                      from FROM_RATE
    evenly to `rate` over the whole load burst:PEAK_RATE:ON_S:EVERY_S        each EVERY_S seconds end with
    ON_S seconds of PEAK_RATE; `rate` otherwise (rate "max")                        everything is due at once:
    flat out; constant only
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from loadgen.errors import ConfigError
from loadgen.session import EVENTS_PER_SESSION

Floats = npt.NDArray[np.float64]
Rate = float | Literal["max"]

FLAT_OUT_ORDER_RATE = 20_000.0
"""Events/s that decides only how sessions interleave when all is due at once: about 300 open at a time."""

MAX_DURATION_S = 366 * 86_400.0
"""A longer load is a slip of the pen; it would also leave the range that `scheduled_at` may have."""

SHAPES = "constant | ramp:FROM_RATE | burst:PEAK_RATE:ON_S:EVERY_S"


class Shape(Protocol):
    """How a load runs over time. Times are seconds since its start, counts are events; both are >= 0."""

    def cumulative(self, t_s: Floats) -> Floats:
        """Events due in [0, t_s]; grows without a jump."""

    def inverse(self, count: Floats) -> Floats:
        """The moment at which `cumulative` reaches `count`."""


@dataclass(frozen=True)
class Constant:
    """`rate` events/s."""

    rate: float

    def cumulative(self, t_s: Floats) -> Floats:
        """Events due in [0, t_s]."""
        return t_s * self.rate

    def inverse(self, count: Floats) -> Floats:
        """When event number `count` is due."""
        return count / self.rate


@dataclass(frozen=True)
class Ramp:
    """From `from_rate` to `to_rate` in `duration_s`, evenly; `to_rate` after that."""

    from_rate: float
    to_rate: float
    duration_s: float

    def cumulative(self, t_s: Floats) -> Floats:
        """Events due in [0, t_s]."""
        inside = np.minimum(t_s, self.duration_s)
        return inside * (self.from_rate + self._slope * inside / 2) + (t_s - inside) * self.to_rate

    def inverse(self, count: Floats) -> Floats:
        """When event number `count` is due: 2k / (r + sqrt(r^2 + 2ak)), exact for small slopes a too."""
        inside = np.minimum(count, (self.from_rate + self.to_rate) / 2 * self.duration_s)
        root: Floats = np.sqrt(np.maximum(self.from_rate**2 + 2 * self._slope * inside, 0.0))
        speed = self.from_rate + root
        within = np.zeros_like(inside)
        np.divide(2 * inside, speed, out=within, where=speed > 0)
        return within + (count - inside) / self.to_rate

    @property
    def _slope(self) -> float:
        return (self.to_rate - self.from_rate) / self.duration_s


@dataclass(frozen=True)
class Burst:
    """`rate` events/s, but `peak_rate` in the last `on_s` of every `every_s` seconds."""

    rate: float
    peak_rate: float
    on_s: float
    every_s: float

    def cumulative(self, t_s: Floats) -> Floats:
        """Events due in [0, t_s]."""
        periods = np.floor(t_s / self.every_s)
        inside = t_s - periods * self.every_s
        calm = np.minimum(inside, self._calm_s)
        return periods * self._per_period + calm * self.rate + (inside - calm) * self.peak_rate

    def inverse(self, count: Floats) -> Floats:
        """When event number `count` is due."""
        periods = np.floor(count / self._per_period)
        inside = count - periods * self._per_period
        calm = np.minimum(inside, self._calm_s * self.rate)
        return periods * self.every_s + calm / self.rate + (inside - calm) / self.peak_rate

    @property
    def _calm_s(self) -> float:
        return self.every_s - self.on_s

    @property
    def _per_period(self) -> float:
        return self._calm_s * self.rate + self.on_s * self.peak_rate


@dataclass(frozen=True)
class AtOnce:
    """Everything is due at 0. `cumulative` is that of the rate which orders the events; see `order_of`."""

    def cumulative(self, t_s: Floats) -> Floats:
        """Events due in [0, t_s], were they not all due at once."""
        return order_of(self).cumulative(t_s)

    def inverse(self, count: Floats) -> Floats:
        """When event number `count` is due: now."""
        return np.zeros_like(count)


def order_of(shape: Shape) -> Shape:
    """The shape that orders the events: `shape` itself, or a constant one for a flat-out load."""
    return Constant(FLAT_OUT_ORDER_RATE) if isinstance(shape, AtOnce) else shape


def parse_rate(rate: object) -> Rate:
    """`rate` as a positive number of events/s, or "max".

    Raises ConfigError for anything else (0, negative, NaN, infinite, text).
    """
    if rate == "max":
        return "max"
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise ConfigError(f'rate: {rate!r} is neither a number of events per second nor "max"')
    if not (math.isfinite(rate) and rate > 0):
        raise ConfigError(f'rate: {rate} events per second is not possible; give a number above 0, or "max"')
    return float(rate)


def parse_shape(spec: str, rate: Rate, events: int) -> Shape:
    """The shape that `spec` describes for a load of `events` events at `rate`.

    Raises ConfigError where the text has no meaning, or where the load would end before its first burst.
    """
    rate = parse_rate(rate)
    kind, numbers = _read(spec)
    if rate == "max":
        if kind != "constant":
            raise ConfigError(f'shape: {spec!r} needs a rate; with rate "max" only "constant" has a meaning')
        return AtOnce()
    shape: Shape
    if kind == "ramp":
        shape = Ramp(numbers[0], rate, duration_s=events / ((numbers[0] + rate) / 2))
    elif kind == "burst":
        shape = Burst(rate, *numbers)
    else:
        shape = Constant(rate)
    duration_s = lasts_s(shape, events)
    if duration_s > MAX_DURATION_S:
        days = duration_s / 86_400
        raise ConfigError(f"rate: {events} events at {rate:g}/s would take {days:.0f} days; raise the rate")
    if isinstance(shape, Burst) and duration_s <= shape.every_s - shape.on_s:
        raise ConfigError(
            f"shape: {spec!r}: the load ends after {duration_s:.1f} s, before its first burst at"
            f" {shape.every_s - shape.on_s:.1f} s; give more sessions or a shorter EVERY_S"
        )
    return shape


def lasts_s(shape: Shape, events: int) -> float:
    """How long a load of so many events takes."""
    return float(shape.inverse(np.array([float(events)]))[0])


def sessions_for(spec: str, rate: Rate, duration_s: float) -> int:
    """How many sessions (at least 1) fill `duration_s` at this rate and shape.

    Raises ConfigError where the rate, the shape or the duration has no meaning, and OverflowError where there is no
    such number of sessions.
    """
    rate = parse_rate(rate)
    kind, numbers = _read(spec)
    if rate == "max":
        raise ConfigError('rate: a load at "max" has no duration of its own; give the number of sessions')
    if not (math.isfinite(duration_s) and duration_s > 0):
        raise ConfigError(f"duration: {duration_s} s is not possible; give a number above 0")
    if kind == "ramp":
        events = (numbers[0] + rate) / 2 * duration_s
    else:
        shape = Burst(rate, *numbers) if kind == "burst" else Constant(rate)
        with np.errstate(over="ignore"):  # `round` refuses what has become infinite
            events = float(shape.cumulative(np.array([duration_s]))[0])
    return max(1, round(events / EVENTS_PER_SESSION))


def _read(spec: str) -> tuple[str, list[float]]:
    """Kind and numbers of a shape's text, each number checked."""
    kind, *texts = spec.split(":")
    names = {"constant": [], "ramp": ["FROM_RATE"], "burst": ["PEAK_RATE", "ON_S", "EVERY_S"]}.get(kind)
    if names is None:
        raise ConfigError(f"shape: {spec!r} is not known; choose from: {SHAPES}")
    if len(texts) != len(names):
        raise ConfigError(f"shape: {spec!r} must be written {':'.join([kind, *names])}")
    numbers = []
    for name, text in zip(names, texts, strict=True):
        try:
            number = float(text)
        except ValueError:
            raise ConfigError(f"shape: {spec!r}: {name} is {text!r}, which is not a number") from None
        from_nothing = kind == "ramp" and number == 0
        if not (math.isfinite(number) and (number > 0 or from_nothing)):
            raise ConfigError(f"shape: {spec!r}: {name} is {text}; it must be a finite number above 0")
        numbers.append(number)
    if kind == "burst" and numbers[1] >= numbers[2]:
        raise ConfigError(f"shape: {spec!r}: ON_S must be shorter than EVERY_S")
    return kind, numbers
