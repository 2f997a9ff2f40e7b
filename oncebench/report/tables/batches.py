"""The table of `oncebench batches`: times and rates of arms that took turns, compared within each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oncebench.delivery.contract import AT_LEAST_ONCE
from oncebench.report.comparisons.paired import Difference, bootstrap
from oncebench.scenario.order import order_of

HEADINGS = ("sink", "guarantee", "variant", "ms p50", "p95", "beside at-least-once, ms", "rows/s", "of native's")


def table(lines: Sequence[Mapping[str, Any]], rows: int) -> str:
    """A Markdown table; rounds below 0 warmed up and are left out.

    Args:
        lines: {"round", "arm": "sink.guarantee.variant", "ms"} of each batch.
        rows: in each batch.
    """
    times = by_arm(lines)
    text = [HEADINGS, *(_row(arm, times, rows) for arm in sorted(times, key=_order))]
    widths = [max(len(row[at]) for row in text) for at in range(len(HEADINGS))]
    written = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
               for row in text]  # fmt: skip
    return "\n".join([written[0], "| " + " | ".join("-" * width for width in widths) + " |", *written[1:]]) + "\n"


def by_arm(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """ms by arm and round."""
    times: dict[str, dict[int, float]] = {}
    for line in lines:
        if line["round"] >= 0:
            times.setdefault(line["arm"], {})[line["round"]] = float(line["ms"])
    return times


def extra_ms(times: Mapping[str, Mapping[int, float]], arm: str, beside: str) -> Difference:
    """How much longer a batch of `arm` takes than one of `beside` in the same round."""
    return bootstrap([times[arm][at] - times[beside][at] for at in times[arm] if at in times[beside]])


def rate_ratio(times: Mapping[str, Mapping[int, float]], arm: str, beside: str) -> Difference:
    """Rows per second of `arm` as a share of `beside`'s, by round."""
    return bootstrap([times[beside][at] / times[arm][at] for at in times[arm] if at in times[beside]])


def _row(arm: str, times: Mapping[str, Mapping[int, float]], rows: int) -> tuple[str, ...]:
    sink, guarantee, variant = arm.split(".")
    p50, p95 = np.percentile(list(times[arm].values()), [50, 95])
    base = next((other for other in sorted(times) if _is(other, sink, AT_LEAST_ONCE) and "native" not in other), None)
    native = next((other for other in sorted(times) if other.startswith(f"{sink}.") and other.endswith(".native")), "")
    extra = "" if base in (None, arm) else _told(extra_ms(times, arm, str(base)), "+.1f")
    ratio = "" if native not in times or native == arm else _told(rate_ratio(times, arm, native), ".3f")
    return sink, guarantee, variant, f"{p50:.1f}", f"{p95:.1f}", extra, f"{rows / p50 * 1000:,.0f}", ratio


def _order(arm: str) -> tuple[str, tuple[int, str]]:
    sink, guarantee, variant = arm.split(".")
    return sink, order_of(guarantee, variant)


def _is(arm: str, sink: str, guarantee: str) -> bool:
    return arm.startswith(f"{sink}.{guarantee}.")


def _told(found: Difference, form: str) -> str:
    return f"{found.median:{form}} {found.interval(form)}"
