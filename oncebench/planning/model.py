"""The model of a plan: how long a batch takes, what it costs, and what latency follows.

A batch of n events has a task per partition. On C task slots its P tasks run in ceil(P / C) waves. So on average
w = P / ceil(P / C) run at once, and the batch takes `fixed + (per_partition * P + per_event * n) / w` milliseconds. A
plan has a slot per core. The processor time of a batch has the same form without w.
At a steady rate a batch takes the events that arrived during the interval before it, so

    interval = max(trigger, batch)        events = rate * interval

An event waits for half an interval on average and for a whole one at worst, and then for its batch. The measured p50
and p99 divided by these sums give one factor each. The factors contain what the sums omit: sessions end in bursts, and
some batches take longer than the median.

Promise: pure functions. Coefficients are not negative (`scipy.optimize.nnls`), and relative errors count alike for
small and large batches.

Limits: more cores than measured are an extrapolation. The model assumes that all tasks of a batch take equally long and
share nothing but the cores. A last wave of few tasks was never measured: its idle cores may shorten it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.optimize import nnls

from oncebench.errors import ExitCode, UserError
from oncebench.planning.points import PlanSetting, Point

# A line through partitions and events needs three different runs; a fourth one shows an error.
FEWEST_SETTINGS = 4
# A fit of few runs may have no fixed part, and a batch without events then takes no time. No batch of Spark is shorter.
SHORTEST_INTERVAL_MS = 1.0


@dataclass(frozen=True)
class Line:
    """Milliseconds of a batch: a fixed part, a part per partition, and a part per event."""

    fixed: float
    per_partition: float
    per_event: float


@dataclass(frozen=True)
class Costs:
    """What the measured runs cost.

    Attributes:
        batch: duration of a batch if one task ran at a time.
        cpu: processor time of a batch.
        p50, p99: measured latency as a ratio to half an interval and a batch, and to an interval and a batch.
        measured: the settings of the runs.
        machine: processor cores of their machine.
        alone: whether the processor time is of the pipeline alone, without any server.
    """

    batch: Line
    cpu: Line
    p50: float
    p99: float
    measured: tuple[PlanSetting, ...]
    machine: int
    alone: bool = False


@dataclass(frozen=True)
class Forecast:
    """What the model expects of a setting.

    Attributes:
        events: events per batch.
        batch_ms: duration of a batch.
        cpu_us: processor time per event in µs, of what `Costs.cpu` counts.
        p50_ms, p99_ms: latency to visibility.
        busy: share of the cores' time that is used.
    """

    events: float
    batch_ms: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    busy: float


def fit(measured: Sequence[Point]) -> Costs:
    """The costs that fit these runs best.

    Raises:
        UserError: the runs are too few, or all alike (exit code 2).
    """
    settings = {point.setting for point in measured}
    if not are_enough(measured):
        raise UserError(
            f"a plan needs runs of at least {FEWEST_SETTINGS} different settings, with two numbers of partitions, and "
            f"one of them with a latency. Here are {len(settings)}. Give --measure, or more files with --from",
            exit_code=ExitCode.USAGE,
        )
    waits = _with_latency(measured)
    tasks = [_at_once(point.setting) for point in measured]
    batch = _line(
        [(1.0, point.setting.partitions / w, point.events / w) for point, w in zip(measured, tasks, strict=True)],
        [point.batch_ms for point in measured],
    )
    cpu = _line(
        [(1.0, float(point.setting.partitions), point.events) for point in measured],
        [point.cpu_ms for point in measured],
    )
    p50 = median((point.p50_ms or 0) / (_interval(point) / 2 + point.batch_ms) for point in waits)
    p99 = median((point.p99_ms or 0) / (_interval(point) + point.batch_ms) for point in waits)
    in_order = tuple(sorted(settings, key=lambda each: each.text))
    return Costs(batch, cpu, p50, p99, in_order, measured[0].machine, measured[0].alone)


def are_enough(measured: Sequence[Point]) -> bool:
    """Whether these runs have a fit."""
    settings = {point.setting for point in measured}
    partitions = {setting.partitions for setting in settings}
    return len(settings) >= FEWEST_SETTINGS and len(partitions) > 1 and bool(_with_latency(measured))


def _with_latency(measured: Sequence[Point]) -> list[Point]:
    return [point for point in measured if point.p50_ms is not None and point.p99_ms is not None]


def forecast(costs: Costs, setting: PlanSetting) -> Forecast | None:
    """What to expect of a setting with a rate; None: the pipeline does not keep up.

    Raises:
        ValueError: the setting is flat out.
    """
    if setting.rate is None:
        raise ValueError("a flat-out load has no steady state")
    per_ms, w, partitions = setting.rate / 1000, _at_once(setting), setting.partitions
    without_events = costs.batch.fixed + costs.batch.per_partition * partitions / w
    free = 1 - costs.batch.per_event * per_ms / w
    if free <= 0:
        return None
    interval = max(float(setting.trigger_ms), without_events / free, SHORTEST_INTERVAL_MS)
    events = per_ms * interval
    batch_ms = duration_ms(costs, setting, events)
    cpu_ms = costs.cpu.fixed + costs.cpu.per_partition * partitions + costs.cpu.per_event * events
    return Forecast(
        events,
        batch_ms,
        cpu_ms / events * 1000,
        costs.p50 * (interval / 2 + batch_ms),
        costs.p99 * (interval + batch_ms),
        cpu_ms / (interval * setting.cores),
    )


def duration_ms(costs: Costs, setting: PlanSetting, events: float) -> float:
    """The expected duration of a batch with so many events."""
    shared = costs.batch.per_partition * setting.partitions + costs.batch.per_event * events
    return costs.batch.fixed + shared / _at_once(setting)


def processor_ms(costs: Costs, setting: PlanSetting, events: float) -> float:
    """The expected processor time of a batch with so many events."""
    return costs.cpu.fixed + costs.cpu.per_partition * setting.partitions + costs.cpu.per_event * events


def _at_once(setting: PlanSetting) -> float:
    """How many tasks run at once, on average over the waves."""
    return setting.partitions / math.ceil(setting.partitions / setting.cores)


def _interval(point: Point) -> float:
    return max(float(point.setting.trigger_ms), point.batch_ms)


def _line(terms: Sequence[tuple[float, float, float]], measured: Sequence[float]) -> Line:
    """The line with the smallest relative errors."""
    weighted = np.array(terms) / np.array(measured)[:, None]
    found, _ = nnls(weighted, np.ones(len(measured)))
    return Line(*map(float, found))
