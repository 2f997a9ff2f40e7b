"""Latency distributions as data: for each healthy way the run whose p99 is the median one.

Promise: a curve is one run's, as measured, and never a mean of several. Where fewer sessions than one lie above a
percentile, there is no point but the largest value: the rows of a session are due at one time and mostly seen in one
look, so that they are one value and not twenty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median_low
from typing import Any

from oncebench.audit.python.latency import CURVE
from oncebench.report.comparisons.paired import Rounds
from oncebench.report.configuration import Configuration
from oncebench.report.measures.metrics import BY_NAME, figure
from oncebench.report.schema import Report
from oncebench.site.costs import settings_of, ways_in
from oncebench.site.pack import short
from pipeline.sessions import ROWS_PER_SESSION


def as_json(reports: Sequence[Report], ways: Sequence[Configuration]) -> dict[str, Any]:
    """The percentiles, and for each setting (numbered as in `costs`) the curves that it has."""
    numbers = {id(report): number for number, report in enumerate(reports)}
    return {
        "percent": list(CURVE),
        "settings": [
            list(_curves(setting.sink, rounds, ways, numbers)) for setting, rounds in settings_of(reports)
        ],
    }  # fmt: skip


def curve_of(report: Report) -> list[float | None] | None:
    """A report's values at CURVE; None where it has none (older ones), or its times tell nothing."""
    values = report.get("latency_curve_ms")
    if values is None or len(values) != len(CURVE) or figure(report, BY_NAME["p99_ms"]) is None:
        return None
    sessions = report["latency_ms"]["n"] / ROWS_PER_SESSION
    return [
        short(value) if percent == CURVE[-1] or sessions * (100 - percent) >= 100 else None
        for percent, value in zip(CURVE, values, strict=True)
    ]


def _curves(
    sink: str, rounds: Rounds, ways: Sequence[Configuration], numbers: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    for way in ways_in(rounds):
        able = [here[way] for here in rounds.values() if way in here and curve_of(here[way]) is not None]
        if not able:
            continue
        middle = median_low([p99 for report in able if (p99 := report["latency_ms"]["p99"]) is not None])
        chosen = next(report for report in able if report["latency_ms"]["p99"] == middle)
        yield {
            "way": ways.index((sink, *way)),
            "run": numbers[id(chosen)],
            "of": len(able),
            "n": chosen["latency_ms"]["n"],
            "ms": curve_of(chosen),
        }
