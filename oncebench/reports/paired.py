"""What one guarantee costs beside another: differences of runs that took turns, pure functions of their reports.

Promise: runs are compared with those of their own round only, so that a machine that gets slower or faster meanwhile
moves both; the interval is the bootstrap's (percentile, 95 %) over the rounds' differences. With few rounds it is
wide, and "no difference shown" is the right reading of an interval that crosses zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Enough for two digits of a percentile; drawn from a fixed seed so that the same reports give the same text.
RESAMPLES = 10_000
BASELINE = ("at-least-once", "acknowledged")
Report = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """Median over the rounds, its 95 % interval, and each round's value."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...]


def bootstrap(values: Sequence[float]) -> Difference:
    """Median and percentile interval of a sample.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no rounds to compare")
    sample = np.array(values)
    draws = np.random.default_rng(0).choice(sample, size=(RESAMPLES, len(sample)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return Difference(float(np.median(sample)), float(low), float(high), tuple(values))


def rounds_of(reports: Sequence[Report]) -> list[dict[tuple[str, str], Report]]:
    """Healthy reports by round (a round has its own seed) and (delivery, variant)."""
    rounds: dict[int, dict[tuple[str, str], Report]] = {}
    for report in reports:
        cell = report["cell"]
        if not cell["faults"] and not cell["random_kills"] and report["verdict"] == "kept":
            rounds.setdefault(report["seed"], {})[cell["delivery"], cell["variant"]] = report
    return [rounds[seed] for seed in sorted(rounds)]


def extra_ms_per_batch(reports: Sequence[Report], of: tuple[str, str]) -> Difference:
    """How much longer the median batch of `of` takes than at-least-once's, ms."""
    return bootstrap([
        here[of]["batches"]["trigger_ms"] - here[BASELINE]["batches"]["trigger_ms"]
        for here in rounds_of(reports) if of in here and BASELINE in here
    ])  # fmt: skip


def throughput_ratio(reports: Sequence[Report], of: tuple[str, str]) -> Difference:
    """Throughput of `of` as a share of at-least-once's."""
    return bootstrap([
        here[of]["throughput"]["events_per_s"] / here[BASELINE]["throughput"]["events_per_s"]
        for here in rounds_of(reports) if of in here and BASELINE in here
    ])  # fmt: skip


def lines(reports: Sequence[Report]) -> list[str]:
    """A line per guarantee and variant that ran beside at-least-once; empty when nothing can be compared."""
    rounds = rounds_of(reports)
    others = sorted({key for here in rounds if BASELINE in here for key in here} - {BASELINE})
    told = []
    for of in others:
        extra, ratio = extra_ms_per_batch(reports, of), throughput_ratio(reports, of)
        told.append(
            f"{' '.join(of)} beside {' '.join(BASELINE)}, {len(extra.rounds)} rounds: "
            f"{extra.median:+.1f} ms a batch ({extra.low:+.1f} to {extra.high:+.1f}), "
            f"throughput x {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        )
    return told
