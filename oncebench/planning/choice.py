"""Chooses a setting: the fewest cores that keep the latency, and on them the least processor time.

Promise: a pure function. Every candidate is tried, so the choice is the best that the model knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oncebench.errors import ExitCode, UserError
from oncebench.planning.model import Costs, Forecast, forecast
from oncebench.planning.points import Setting

# Of the cores' time. At 10,000 events/s the pipeline and its broker used three quarters of two cores; other work then
# raised the p99 at once (docs/speed.md).
MOST_BUSY = 0.75
# A plan for more cores or partitions than these would be a guess: both are far beyond any measured run.
MOST_CORES, MOST_PARTITIONS = 128, 256
TRIGGERS_MS = (0, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
# Kafka's default of the producer's transaction.timeout.ms, and the broker's limit, transaction.max.timeout.ms.
USUAL_TIMEOUT_S, BROKER_LIMIT_S = 60, 900
# From a kill to the first new row on two cores (docs/speed.md), rounded up.
RESTART_S = 15


@dataclass(frozen=True)
class Plan:
    """A setting and what to expect of it."""

    setting: Setting
    expected: Forecast


def choose(costs: Costs, rate: float, p99_ms: float) -> Plan:
    """The cheapest setting for a rate (events per second) whose p99 is at most so many milliseconds.

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


def beyond(costs: Costs, setting: Setting) -> list[str]:
    """The choices that lie outside the measured runs: `6 cores (measured: 2)`."""
    found = []
    for name in ("cores", "partitions"):
        measured = {getattr(each, name) for each in costs.measured}
        value = getattr(setting, name)
        if not min(measured) <= value <= max(measured):
            known = f"{min(measured)} to {max(measured)}" if len(measured) > 1 else f"{min(measured)}"
            found.append(f"{value} {name if value > 1 else name[:-1]} (measured: {known})")
    highest = max((each.rate for each in costs.measured if each.rate is not None), default=0.0)
    if setting.rate is not None and setting.rate > highest:
        found.append(f"{setting.rate:,.0f} events/s (measured: up to {highest:,.0f}, and flat out)")
    return found


def _candidates(costs: Costs, rate: float, cores: int) -> list[Plan]:
    settings = (
        Setting(rate, cores, 2**power, trigger_ms)
        for power in range(MOST_PARTITIONS.bit_length())
        for trigger_ms in TRIGGERS_MS
    )
    forecasts = ((setting, forecast(costs, setting)) for setting in settings)
    return [Plan(setting, expected) for setting, expected in forecasts if expected is not None]
