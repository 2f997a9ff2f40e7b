"""Chooses a setting: the fewest cores that keep the latency.

On these cores it chooses the setting with the least processor time.

Promise: a pure function. Every number of partitions up to the cores is tried with each of TRIGGERS_MS. More partitions
than cores would make further waves of tasks, which only add time and work to a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oncebench.errors import ExitCode, UserError
from oncebench.planning.model import Costs, Forecast, forecast
from oncebench.planning.points import PlanSetting

# Of the cores' time. At 10,000 events/s the pipeline and its broker used three quarters of two cores; other work then
# raised the p99 at once (docs/speed.md).
MOST_BUSY = 0.75
# A plan for more cores would be a guess: this is far beyond any measured run.
MOST_CORES = 128
TRIGGERS_MS = (0, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
# Kafka's default of the producer's transaction.timeout.ms, and the broker's limit, transaction.max.timeout.ms.
USUAL_TIMEOUT_S, BROKER_LIMIT_S = 60, 900
# From a kill to the first new row under a two-phase variant, on two cores (README.md: 16.6 to 17.2 s), rounded up.
RESTART_S = 20


@dataclass(frozen=True)
class Plan:
    """A setting and what to expect of it."""

    setting: PlanSetting
    expected: Forecast


def choose(costs: Costs, rate: float, p99_ms: float) -> Plan:
    """Returns the cheapest setting for a rate and a limit of the latency.

    The rate is in events per second. The p99 is at most `p99_ms` milliseconds.

    Raises:
        UserError: no setting keeps the latency; the text has the lowest p99 that one reaches (exit code 1).
    """
    lowest = math.inf
    for cores in range(1, MOST_CORES + 1):
        fitting = []
        for plan in _candidates(costs, rate, cores):
            if plan.expected.busy > MOST_BUSY:
                continue
            lowest = min(lowest, plan.expected.p99_ms)
            if plan.expected.p99_ms <= p99_ms:
                fitting.append(plan)
        if fitting:
            return min(fitting, key=lambda each: (each.expected.cpu_us, each.setting.partitions))
    if math.isinf(lowest):
        raise UserError(
            f"no plan: {rate:,.0f} events/s need more than {MOST_CORES} cores. Split the topic over several jobs"
        )
    raise UserError(
        f"no plan: at {rate:,.0f} events/s the lowest p99 is {lowest:,.0f} ms, and {p99_ms:,.0f} ms was asked. "
        "Give a larger --p99",
        exit_code=ExitCode.ERROR,
    )


def transaction_timeout_s(plan: Plan, outage_s: float) -> int:
    """The transaction time-out that an outage of this length does not exceed, in seconds.

    A prepared transaction must live through a batch, the outage and the restart.
    """
    return max(USUAL_TIMEOUT_S, math.ceil(outage_s + RESTART_S + 2 * plan.expected.batch_ms / 1000))


def beyond(costs: Costs, setting: PlanSetting) -> list[str]:
    """The choices that lie outside the measured runs: `6 cores (measured: 2)`."""
    found = []
    slots = {each.cores for each in costs.measured}
    if {setting.cores, costs.machine} != slots:
        known = _range(slots) if slots == {costs.machine} else f"{_range(slots)} tasks at once on {costs.machine} cores"
        found.append(f"{_counted(setting.cores, 'core')} (measured: {known})")
    partitions = {each.partitions for each in costs.measured}
    if not min(partitions) <= setting.partitions <= max(partitions):
        found.append(f"{_counted(setting.partitions, 'partition')} (measured: {_range(partitions)})")
    triggers = {each.trigger_ms for each in costs.measured}
    if not min(triggers) <= setting.trigger_ms <= max(triggers):
        found.append(f"trigger {setting.trigger_ms:,} ms (measured: {_range(triggers)} ms)")
    highest = max((each.rate for each in costs.measured if each.rate is not None), default=0.0)
    if setting.rate is not None and setting.rate > highest:
        found.append(f"{setting.rate:,.0f} events/s (measured: up to {highest:,.0f}, and flat out)")
    return found


def _range(values: set[int]) -> str:
    return f"{min(values):,} to {max(values):,}" if len(values) > 1 else f"{min(values):,}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def _candidates(costs: Costs, rate: float, cores: int) -> list[Plan]:
    settings = (
        PlanSetting(rate, cores, partitions, trigger_ms)
        for partitions in range(1, cores + 1)
        for trigger_ms in TRIGGERS_MS
    )
    forecasts = ((setting, forecast(costs, setting)) for setting in settings)
    return [Plan(setting, expected) for setting, expected in forecasts if expected is not None]
