"""The shapes of a load: how its rate changes over time.

| shape                          | rate of events                                           |
|--------------------------------|----------------------------------------------------------|
| `constant`                     | `rate` all the time                                      |
| `ramp:FROM_RATE`               | linearly from FROM_RATE to `rate` over the whole load    |
| `burst:PEAK_RATE:ON_S:EVERY_S` | PEAK_RATE in the last ON_S seconds of every EVERY_S      |
|                                | seconds, `rate` otherwise                                |
| rate "max"                     | all events are due at once (flat out); `constant` only   |

A shape is a pair of inverse functions. `cumulative(t)` is the number of events due in the first `t` seconds;
`inverse(k)` is the time at which event number k is due. Event k is scheduled at exactly `inverse(k)`, so the rate is
exact at every moment. The whole schedule is fixed before the first event is sent (an open loop).
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from loadgen.errors import ConfigError
from loadgen.session import EVENTS_PER_SESSION

Floats = npt.NDArray[np.float64]
Rate = float | Literal["max"]

FLAT_OUT_ORDER_RATE = 20_000.0
"""Events/s that orders the events when all are due at once; about 300 sessions are then open at a time."""

MAX_RATE = 1e9
"""Events/s that no generator reaches. Squares of larger rates leave the range of a float."""

MAX_DURATION_S = 366 * 86_400.0
"""A longer load is a typing error, and would leave the valid range of `scheduled_at`."""

_DIGITS = 24  # of a wrong number in a message; a float has no more

SHAPES = "constant | ramp:FROM_RATE | burst:PEAK_RATE:ON_S:EVERY_S"


class Shape(Protocol):
    """The events due over time. Times are seconds since the start, counts are events; both >= 0."""

    def cumulative(self, t_s: Floats) -> Floats:
        """The events due in [0, t_s]; continuous."""

    def inverse(self, count: Floats) -> Floats:
        """The time at which `cumulative` reaches `count`."""


@dataclass(frozen=True)
class Constant:
    """`rate` events/s all the time.

    rate |------------------
         |
         +------------------> time
    """

    rate: float

    def cumulative(self, t_s: Floats) -> Floats:
        """Events due in [0, t_s]."""
        return t_s * self.rate

    def inverse(self, count: Floats) -> Floats:
        """The time at which event number `count` is due."""
        return count / self.rate


@dataclass(frozen=True)
class Ramp:
    """From `from_rate` evenly to `to_rate` in `duration_s`; `to_rate` after that.

      to_rate |            .------
              |       . '
              |  . '
    from_rate |'
              +------------|-----> time
                       duration_s
    """

    from_rate: float
    to_rate: float
    duration_s: float

    def cumulative(self, t_s: Floats) -> Floats:
        """Events due in [0, t_s]."""
        inside = np.minimum(t_s, self.duration_s)
        return inside * (self.from_rate + self._slope * inside / 2) + (t_s - inside) * self.to_rate

    def inverse(self, count: Floats) -> Floats:
        """The time at which event number k is due.

        With r = `from_rate` and slope a: 2k / (r + sqrt(r^2 + 2ak)). This form is exact for small slopes too.
        """
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
    """`peak_rate` in the last `on_s` of every `every_s` seconds, `rate` otherwise.

    peak_rate |          .---.           .---.
              |          |   |           |   |
         rate |----------'   '-----------'   '--
              +----------|---|---------------|--> time
                         <on_s>
              <-- every_s --->
    """

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
        """The time at which event number `count` is due."""
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
    """All events are due at time 0.

    events due |all-------------
               |
               +----------------> time

    `cumulative` belongs to the rate that orders the events, see `order_of`.
    """

    def cumulative(self, t_s: Floats) -> Floats:
        """The events due in [0, t_s] at the rate that orders them."""
        return order_of(self).cumulative(t_s)

    def inverse(self, count: Floats) -> Floats:
        """Zero for every event."""
        return np.zeros_like(count)


def order_of(shape: Shape) -> Shape:
    """The shape that orders the events: `shape` itself, or a constant one for a flat-out load."""
    return Constant(FLAT_OUT_ORDER_RATE) if isinstance(shape, AtOnce) else shape


def parse_rate(rate: object) -> Rate:
    """`rate` as a positive number of events/s, or "max".

    Raises ConfigError for anything else (0, negative, above MAX_RATE, NaN, text).
    """
    if rate == "max":
        return "max"
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise ConfigError(f'rate: {rate!r} is neither a number of events per second nor "max"')
    if not 0 < rate <= MAX_RATE:  # false for NaN
        digits = str(rate)
        text = digits if len(digits) <= _DIGITS else f"{digits[:_DIGITS]}..."
        raise ConfigError(
            f'rate: {text} events per second is not possible; give a number above 0 and up to {MAX_RATE:g}, or "max"'
        )
    return float(rate)


def parse_shape(spec: str, rate: Rate, events: int) -> Shape:
    """The shape that `spec` describes for a load of `events` events at `rate`.

    Raises ConfigError if the text is not a shape, or if the load ends before its first burst.
    """
    rate = parse_rate(rate)
    kind, numbers = _read(spec)
    if rate == "max":
        if kind != "constant":
            raise ConfigError(f'shape: {spec!r} needs a rate. With rate "max" only "constant" is possible')
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
    """The duration of a load of `events` events, s."""
    return float(shape.inverse(np.array([float(events)]))[0])


def sessions_for(spec: str, rate: Rate, duration_s: float) -> int:
    """The number of sessions (at least 1) that fill `duration_s` at this rate and shape.

    Raises ConfigError if the rate, the shape or the duration is not valid.
    """
    rate = parse_rate(rate)
    kind, numbers = _read(spec)
    if rate == "max":
        raise ConfigError('rate: a load at "max" has no duration of its own; give the number of sessions')
    if not 0 < duration_s <= MAX_DURATION_S:  # false for NaN
        raise ConfigError(
            f"duration: {duration_s:g} s is not possible; give a number above 0 and up to {MAX_DURATION_S:.0f}"
        )
    if kind == "ramp":
        events = (numbers[0] + rate) / 2 * duration_s
    else:
        shape = Burst(rate, *numbers) if kind == "burst" else Constant(rate)
        with np.errstate(over="ignore"):  # `round` refuses an infinite number
            events = float(shape.cumulative(np.array([duration_s]))[0])
    return max(1, round(events / EVENTS_PER_SESSION))


def _read(spec: str) -> tuple[str, list[float]]:
    """The kind and the checked numbers of a shape's text."""
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
        if not (from_nothing or 0 < number <= MAX_RATE):  # more seconds than that are no load either
            lowest = "of 0 or more" if kind == "ramp" else "above 0"
            raise ConfigError(
                f"shape: {spec!r}: {name} is {text}; it must be a number {lowest}, and up to {MAX_RATE:g}"
            )
        numbers.append(number)
    if kind == "burst" and numbers[1] >= numbers[2]:
        raise ConfigError(f"shape: {spec!r}: ON_S must be shorter than EVERY_S")
    return kind, numbers
