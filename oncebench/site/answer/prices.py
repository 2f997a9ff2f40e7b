"""The prices of exactly-once flat out: time and CPU per event.

They come from series of `oncebench batches --events`.
Promise: pure functions. In such a series all guarantees take turns in one process, so its intervals are far narrower
than those of runs. The newest series that has a configuration counts for it; series are never mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oncebench.report.comparisons.paired import Difference, median_interval
from oncebench.report.configuration import Configuration
from oncebench.report.tables.batch_series import BatchSeries
from oncebench.report.tables.batches import baseline, by_arm, parts, ratio_of


@dataclass(frozen=True)
class Price:
    """A price under exactly-once and under at-least-once, and the ratio of the two."""

    exact: Difference
    base: Difference
    ratio: Difference


# By metric of `report.measures.metrics`: the field of a batch.
_FIELDS: Mapping[str, str] = {"s_per_million": "ms", "cpu_s": "cpu_ms"}


def prices_of(all_series: Sequence[BatchSeries]) -> dict[Configuration, dict[str, Price]]:
    """The prices of each configuration but at-least-once itself, by metric."""
    found: dict[Configuration, dict[str, Price]] = {}
    for series in whole(all_series):
        events = int(series.about["events"])
        for metric, field in _FIELDS.items():
            values = by_arm(series.lines, field)
            for arm in values:
                base = baseline(parts(arm)[0], values)
                if base not in (None, arm):
                    price = Price(
                        _per_million_s(values[arm].values(), events),
                        _per_million_s(values[str(base)].values(), events),
                        ratio_of(values, arm, str(base)),
                    )
                    found.setdefault(parts(arm), {})[metric] = price
    return found


def load_of(all_series: Sequence[BatchSeries]) -> str | None:
    """The load of these prices in words; None without a series."""
    newest = whole(all_series)[-1:]
    if not newest:
        return None
    rounds = len({line["round"] for line in newest[0].lines})
    return f"flat out in batches of {int(newest[0].about['events']):,} events, {rounds} rounds in one process"


def whole(all_series: Sequence[BatchSeries]) -> list[BatchSeries]:
    """The series of the whole pipeline, oldest first."""
    return sorted((series for series in all_series if series.is_whole), key=lambda series: str(series.about["series"]))


def _per_million_s(times_ms: Iterable[float], events: int) -> Difference:
    """Seconds per million events, of batches with so many events."""
    return median_interval([ms / events * 1000 for ms in times_ms])
