"""The table of `oncebench batches`: times and rates, compared within each round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from oncebench.audit.python.latency import Distribution
from oncebench.delivery.contract import AT_LEAST_ONCE
from oncebench.report.comparisons.paired import Difference, median_interval
from oncebench.report.configuration import place_of
from oncebench.report.grid import grid

HEADINGS = ("sink", "guarantee", "variant", "ms p50", "p95", "versus at-least-once, ms", "rows/s", "of native's")


def table(lines: Sequence[Mapping[str, Any]], rows: int) -> str:
    """A Markdown table. Rounds below 0 warmed up and are left out.

    Args:
        lines: {"round", "arm": "sink.guarantee.variant", "ms"} of each batch.
        rows: in each batch.
    """
    times = by_arm(lines)
    return grid([HEADINGS, *(_row(arm, times, rows) for arm in sorted(times, key=lambda arm: place_of(_parts(arm))))])


def by_arm(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """The ms of each round, by configuration (`arm` in the lines)."""
    times: dict[str, dict[int, float]] = {}
    for line in lines:
        if line["round"] >= 0:
            times.setdefault(line["arm"], {})[line["round"]] = float(line["ms"])
    return times


def extra_ms(times: Mapping[str, Mapping[int, float]], arm: str, baseline: str) -> Difference:
    """The time of a batch of `arm` minus that of a batch of `baseline` in the same round."""
    return median_interval([times[arm][at] - times[baseline][at] for at in times[arm] if at in times[baseline]])


def rate_ratio(times: Mapping[str, Mapping[int, float]], arm: str, baseline: str) -> Difference:
    """Rows per second of `arm` divided by those of `baseline` in the same round."""
    return median_interval([times[baseline][at] / times[arm][at] for at in times[arm] if at in times[baseline]])


def percentiles(times_ms: Iterable[float]) -> tuple[float, float]:
    """(p50, p95) of batch times: times that were really measured (nearest rank)."""
    found = Distribution.of(np.array(list(times_ms), dtype=float))
    assert found.p50 is not None and found.p95 is not None  # a configuration in the table has a batch
    return found.p50, found.p95


def _row(arm: str, times: Mapping[str, Mapping[int, float]], rows: int) -> tuple[str, ...]:
    sink, guarantee, variant = _parts(arm)
    p50, p95 = percentiles(times[arm].values())
    base = next((other for other in sorted(times) if _is(other, sink, AT_LEAST_ONCE) and "native" not in other), None)
    native = next((other for other in sorted(times) if other.startswith(f"{sink}.") and other.endswith(".native")), "")
    extra = "" if base in (None, arm) else _text(extra_ms(times, arm, str(base)), "+.1f")
    ratio = "" if native not in times or native == arm else _text(rate_ratio(times, arm, native), ".3f")
    return sink, guarantee, variant, f"{p50:.1f}", f"{p95:.1f}", extra, f"{rows / p50 * 1000:,.0f}", ratio


def _parts(arm: str) -> tuple[str, str, str]:
    sink, guarantee, variant = arm.split(".")
    return sink, guarantee, variant


def _is(arm: str, sink: str, guarantee: str) -> bool:
    return arm.startswith(f"{sink}.{guarantee}.")


def _text(found: Difference, form: str) -> str:
    return f"{found.median:{form}} {found.interval(form)}"
