"""The prices of exactly-once flat out: time and CPU per event.

They come from series of `oncebench batches --events`.
Promise: pure functions. In such a series all guarantees take turns in one process, so its intervals are far narrower
than those of runs. Series with the same size of batch, machine and version are merged. One merged series counts for all
sinks: the series in which most sinks have a ratio under exactly-once with an interval, and of equal ones the newest. So
an interrupted or a small series does not replace a full one. As in `oncebench.report.comparisons.paired`, a single
round has no ratio.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.report.comparisons.paired import FEWEST_COMPARED, Difference, median_interval
from oncebench.report.configuration import Configuration
from oncebench.report.tables.batch_series import BatchSeries, merged
from oncebench.report.tables.batches import are_comparable, baseline, by_arm, parts, ratio_of


@dataclass(frozen=True)
class Price:
    """A price under a guarantee and under at-least-once, and the ratio of the two."""

    exact: Difference
    base: Difference
    ratio: Difference | None


# By metric of `report.measures.metrics`: the field of a batch.
_FIELDS: Mapping[str, str] = {"s_per_million": "ms", "cpu_s": "cpu_ms"}


def prices_of(all_series: Sequence[BatchSeries]) -> dict[Configuration, dict[str, Price]]:
    """The prices of each configuration but at-least-once itself, by metric."""
    series = counting(all_series)
    return {} if series is None else _prices(series)


def counting(all_series: Sequence[BatchSeries]) -> BatchSeries | None:
    """The series whose prices count; None if no series compares exactly-once with at-least-once."""
    found = [(_sinks(series), series) for series in reversed(whole(all_series))]
    counted = [(sinks, series) for sinks, series in found if any(sinks)]
    return max(counted, key=lambda each: each[0], default=(None, None))[1]  # the newest of equal ones


def load_of(all_series: Sequence[BatchSeries], machine: str | None = None) -> str | None:
    """The load of these prices in words; None without a series.

    It names a machine that is not `machine`, and the user's servers.
    """
    series = counting(all_series)
    if series is None:
        return None
    rounds = len(set().union(*by_arm(series.lines).values()))
    processes = f"{len(series.merged)} processes" if series.merged else "one process"
    load = f"flat out in batches of {int(series.about['events']):,} events, {rounds} rounds in {processes}"
    where = series.machine if series.machine != machine else None
    return ", ".join(filter(None, (load, where, *series.servers)))


def _sinks(series: BatchSeries) -> tuple[int, int]:
    """How many sinks have an exactly-once ratio of time with an interval, and how many have any."""
    ratios = {
        arm[0]: ratio
        for arm, prices in _prices(series).items()
        if arm[1] == EXACTLY_ONCE and (ratio := prices["s_per_million"].ratio) is not None
    }
    return sum(ratio.has_interval for ratio in ratios.values()), len(ratios)


def _prices(series: BatchSeries) -> dict[Configuration, dict[str, Price]]:
    found: dict[Configuration, dict[str, Price]] = {}
    events = int(series.about["events"])
    for metric, field in _FIELDS.items():
        values = by_arm(series.lines, field)
        for arm in values:
            base = baseline(parts(arm)[0], values)
            if base not in (None, arm):
                found.setdefault(parts(arm), {})[metric] = Price(
                    _per_million_s(values[arm].values(), events),
                    _per_million_s(values[str(base)].values(), events),
                    _ratio(values, arm, str(base)),
                )
    return found


def _ratio(values: Mapping[str, Mapping[int, float]], arm: str, base: str) -> Difference | None:
    ratio = ratio_of(values, arm, base) if are_comparable(values, arm, base) else None
    return None if ratio is None or len(ratio.rounds) < FEWEST_COMPARED else ratio


def whole(all_series: Sequence[BatchSeries]) -> list[BatchSeries]:
    """The series of the whole pipeline, oldest first.

    Series with the same size of batch, machine and version are merged.
    """
    found = merged([series for series in all_series if series.is_whole])
    return sorted(found, key=lambda series: str(series.about["series"]))


def _per_million_s(times_ms: Iterable[float], events: int) -> Difference:
    """Seconds per million events, of batches with so many events."""
    return median_interval([ms / events * 1000 for ms in times_ms])
