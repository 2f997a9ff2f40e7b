"""The error of a plan: each setting is predicted from the runs of all other settings.

Promise: pure functions. A run is never predicted from itself or from a run with the same setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oncebench.planning.model import Costs, are_enough, duration_ms, fit, forecast, processor_ms
from oncebench.planning.points import PlanSetting, Point

# The share by which a prediction may miss; beyond it, the table marks the figure.
TOLERANCE = 0.25


@dataclass(frozen=True)
class Error:
    """One figure of one run of a held-out setting.

    Attributes:
        events: input events per batch of the run.
        name: the figure, with its unit.
        predicted, measured: in that unit; a plan without a steady state has no prediction.
    """

    setting: PlanSetting
    events: float
    name: str
    predicted: float | None
    measured: float

    @property
    def run_text(self) -> str:
        """The run in words. Flat out, runs of one setting differ in the size of their batches."""
        text = self.setting.text
        return f"{text}, {self.events:,.0f} events a batch" if self.setting.rate is None else text

    @property
    def share(self) -> float | None:
        """How far the prediction is from the measured figure: 0.1 is 10 % too high."""
        return None if self.predicted is None else self.predicted / self.measured - 1

    @property
    def missed(self) -> bool:
        """Whether the prediction is off by more than TOLERANCE, or absent."""
        return self.share is None or abs(self.share) > TOLERANCE


def errors(points: Sequence[Point]) -> list[Error]:
    """Returns the errors of each setting, predicted without its own runs.

    A setting is left out if the others have no fit.
    """
    found: list[Error] = []
    for setting in dict.fromkeys(point.setting for point in points):
        others = [point for point in points if point.setting != setting]
        if not are_enough(others):
            continue
        costs = fit(others)
        for point in points:
            if point.setting == setting:
                found += _of(costs, point)
    return found


def _of(costs: Costs, point: Point) -> Iterator[Error]:
    setting = point.setting
    if setting.rate is None:
        yield Error(setting, point.events, "batch ms", duration_ms(costs, setting, point.events), point.batch_ms)
        cpu_us = processor_ms(costs, setting, point.events) / point.events * 1000
        yield Error(setting, point.events, "CPU µs/event", cpu_us, point.cpu_ms / point.events * 1000)
        return
    expected = forecast(costs, setting)
    predicted = (None,) * 4 if expected is None else (
        expected.batch_ms, expected.cpu_us, expected.p50_ms, expected.p99_ms
    )  # fmt: skip
    measured = (point.batch_ms, point.cpu_ms / point.events * 1000, point.p50_ms, point.p99_ms)
    for name, guess, value in zip(("batch ms", "CPU µs/event", "p50 ms", "p99 ms"), predicted, measured, strict=True):
        if value is not None:
            yield Error(setting, point.events, name, guess, value)
