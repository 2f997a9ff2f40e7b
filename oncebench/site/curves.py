"""Latency distributions as data: for each configuration its run with the median p99.

Promise: a curve is one healthy run as measured, never a mean of several. A percentile has no value if fewer than one
independent latency lies above it (`metrics.independent_latencies`); the largest value always stays. Where the value
would be that of a row that was never seen, it is missing, also the largest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median_low
from typing import Any

from oncebench.audit.python.latency import CURVE
from oncebench.report.comparisons.paired import Rounds, variants_in
from oncebench.report.configuration import Configuration
from oncebench.report.measures.metrics import BY_NAME, figure, independent_latencies
from oncebench.report.schema import Report
from oncebench.site.costs import settings_of
from oncebench.site.pack import short


def as_json(reports: Sequence[Report], configurations: Sequence[Configuration]) -> dict[str, Any]:
    """The percentiles, and for each setting (in the order of `costs`) its curves."""
    numbers = {id(report): number for number, report in enumerate(reports)}
    return {
        "percent": list(CURVE),
        "settings": [
            list(_curves(setting.sink, rounds, configurations, numbers)) for setting, rounds in settings_of(reports)
        ],
    }  # fmt: skip


def curve_of(report: Report) -> list[float | None] | None:
    """A report's values at CURVE; None without a curve, or where latency means nothing."""
    values = report.get("latency_curve_ms")
    if values is None or len(values) != len(CURVE) or figure(report, BY_NAME["p99_ms"]) is None:
        return None
    latencies = independent_latencies(report) or 0.0
    return [
        short(value) if percent == CURVE[-1] or latencies * (100 - percent) >= 100 else None
        for percent, value in zip(CURVE, values, strict=True)
    ]


def _curves(
    sink: str, rounds: Rounds, configurations: Sequence[Configuration], numbers: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    for variant in variants_in(rounds):
        able = [here[variant] for here in rounds.values() if variant in here and curve_of(here[variant]) is not None]
        if not able:
            continue
        middle = median_low([p99 for report in able if (p99 := report["latency_ms"]["p99"]) is not None])
        chosen = next(report for report in able if report["latency_ms"]["p99"] == middle)
        yield {
            "configuration": configurations.index((sink, *variant)),
            "run": numbers[id(chosen)],
            "of": len(able),
            "n": chosen["latency_ms"]["n"],
            "ms": curve_of(chosen),
        }
