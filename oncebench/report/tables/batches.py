"""The table of `oncebench batches`: times and rates, compared within each round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from oncebench.audit.python.latency import Distribution
from oncebench.delivery.contract import AT_LEAST_ONCE
from oncebench.report.comparisons.paired import BASELINE, Difference, median_interval
from oncebench.report.configuration import Configuration, place_of
from oncebench.report.grid import grid
from oncebench.report.tables.batch_series import BatchSeries

HEADINGS = ("sink", "guarantee", "variant", "ms p50", "p95", "versus at-least-once, ms", "rows/s", "of native's")
WHOLE = (
    "sink", "guarantee", "variant", "batch, ms", "ms more than at-least-once", "events/s", "time ratio",
    "CPU per event", "CPU ratio",
)  # fmt: skip


AGREE = ("sink", "guarantee", "variant", "first series", "second series", "both", "do they agree?")


def text(series: BatchSeries) -> str:
    """The table of one series."""
    return whole_table(series.lines) if series.is_whole else table(series.lines, int(series.about["rows"]))


def markdown(all_series: Sequence[BatchSeries]) -> str:
    """The tables of several series, each with its machine, version and command.

    Empty without a series.
    """
    return "\n".join(f"{_heading(series)}\n\n{text(series)}" for series in all_series)


def _heading(series: BatchSeries) -> str:
    commit = series.about["environment"]["commit"]
    where = f"{series.place}, {f'version {commit}' if commit else 'unknown version'}"
    return f"{series.about['series']}: {where}, `{series.about['command']}`"


def agreements(all_series: Sequence[BatchSeries]) -> str:
    """Tables that compare two series of equal batches; empty if there are none.

    The batches are equal if they have the same size and number of tasks, and the same machine and servers. Two series
    agree if the intervals of their ratios overlap.
    """
    return "\n".join(_pairs({str(series.about["series"]): series for series in all_series}.values()))


def _pairs(all_series: Iterable[BatchSeries]) -> Iterator[str]:
    for _, same in groupby(sorted(all_series, key=_same), key=_same):
        first, *others = list(same)
        for other in others:
            if rows := _agreement(first, other):
                names = f"{first.about['series']} and {other.about['series']}"
                yield f"Time relative to at-least-once, in {names}:\n\n{grid([AGREE, *rows])}"


def _same(series: BatchSeries) -> tuple[str, ...]:
    return (*(str(series.about.get(name)) for name in ("events", "rows", "partitions")), series.place)


def _agreement(first: BatchSeries, second: BatchSeries) -> list[tuple[str, ...]]:
    one, two = by_arm(first.lines), by_arm(second.lines)
    rows: list[tuple[str, ...]] = []
    for arm in sorted(set(one) & set(two), key=lambda arm: place_of(parts(arm))):
        base = baseline(arm.split(".")[0], one)
        if base in two and are_comparable(one, arm, base) and are_comparable(two, arm, base):
            a, b = ratio_of(one, arm, str(base)), ratio_of(two, arm, str(base))
            overlap = a.low <= b.high and b.low <= a.high
            known = a.has_interval and b.has_interval
            both = median_interval([*a.rounds, *b.rounds])
            texts = (_marked(each, ".3f", 1.0) for each in (a, b, both))
            rows.append((*parts(arm), *texts, _word(known, overlap)))
    return rows


def _word(known: bool, overlap: bool) -> str:
    if not known:
        return "too few rounds"
    return "yes" if overlap else "**no**"


def table(lines: Sequence[Mapping[str, Any]], rows: int) -> str:
    """A Markdown table. Rounds below 0 warmed up and are left out.

    Args:
        lines: {"round", "arm": "sink.guarantee.variant", "ms"} of each batch.
        rows: in each batch.
    """
    times = by_arm(lines)
    return grid([HEADINGS, *(_row(arm, times, rows) for arm in sorted(times, key=lambda arm: place_of(parts(arm))))])


def whole_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table of batches of the whole pipeline.

    Args:
        lines: {"round", "arm", "events", "ms", "cpu_ms"} of each batch.
    """
    return grid([WHOLE, *whole_rows(lines)])


def whole_rows(lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The rows of `whole_table`."""
    times, cpu = by_arm(lines), by_arm(lines, "cpu_ms")
    events = {line["arm"]: int(line["events"]) for line in lines}
    return [_whole_row(arm, times, cpu, events[arm]) for arm in sorted(times, key=lambda arm: place_of(parts(arm)))]


def by_arm(lines: Sequence[Mapping[str, Any]], field: str = "ms") -> dict[str, dict[int, float]]:
    """A field of each round, by configuration (`arm` in the lines)."""
    found: dict[str, dict[int, float]] = {}
    for line in lines:
        if line["round"] >= 0:
            found.setdefault(line["arm"], {})[line["round"]] = float(line[field])
    return found


def are_comparable(values: Mapping[str, Mapping[int, float]], arm: str, baseline: str | None) -> bool:
    """Whether two arms have a ratio: they share a round, and all their values are above 0.

    The CPU time of a small batch may be below the resolution of its clock.
    """
    if baseline in (None, arm):
        return False
    common = [at for at in values[arm] if at in values[str(baseline)]]
    return bool(common) and all(min(values[arm][at], values[str(baseline)][at]) > 0 for at in common)


def extra_ms(times: Mapping[str, Mapping[int, float]], arm: str, baseline: str) -> Difference:
    """The time of a batch of `arm` minus that of a batch of `baseline` in the same round."""
    return median_interval([times[arm][at] - times[baseline][at] for at in times[arm] if at in times[baseline]])


def ratio_of(values: Mapping[str, Mapping[int, float]], arm: str, baseline: str) -> Difference:
    """A value of `arm` divided by that of `baseline` in the same round."""
    return median_interval([values[arm][at] / values[baseline][at] for at in values[arm] if at in values[baseline]])


def rate_ratio(times: Mapping[str, Mapping[int, float]], arm: str, baseline: str) -> Difference:
    """Rows per second of `arm` divided by those of `baseline` in the same round."""
    return median_interval([times[baseline][at] / times[arm][at] for at in times[arm] if at in times[baseline]])


def percentiles(times_ms: Iterable[float]) -> tuple[float, float]:
    """(p50, p95) of batch times: times that were really measured (nearest rank)."""
    found = Distribution.of(np.array(list(times_ms), dtype=float))
    assert found.p50 is not None and found.p95 is not None  # a configuration in the table has a batch
    return found.p50, found.p95


def _row(arm: str, times: Mapping[str, Mapping[int, float]], rows: int) -> tuple[str, ...]:
    sink, guarantee, variant = parts(arm)
    p50, p95 = percentiles(times[arm].values())
    base = baseline(sink, times)
    native = next((other for other in sorted(times) if other.startswith(f"{sink}.") and other.endswith(".native")), "")
    extra = _text(extra_ms(times, arm, str(base)), "+.1f") if are_comparable(times, arm, base) else ""
    ratio = _text(rate_ratio(times, arm, native), ".3f") if native and are_comparable(times, arm, native) else ""
    return sink, guarantee, variant, f"{p50:.1f}", f"{p95:.1f}", extra, f"{rows / p50 * 1000:,.0f}", ratio


def _whole_row(
    arm: str, times: Mapping[str, Mapping[int, float]], cpu: Mapping[str, Mapping[int, float]], events: int
) -> tuple[str, ...]:
    sink, guarantee, variant = parts(arm)
    p50, _ = percentiles(times[arm].values())
    cpu_ms, _ = percentiles(cpu[arm].values())
    base = baseline(sink, times)
    extra, ratio, cpu_ratio = (
        _marked(compare(values, arm, str(base)), form, none) if are_comparable(values, arm, base) else ""
        for compare, values, form, none in (
            (extra_ms, times, "+.1f", 0.0), (ratio_of, times, ".3f", 1.0), (ratio_of, cpu, ".3f", 1.0),
        )
    )  # fmt: skip
    rate, cpu_us = f"{events / p50 * 1000:,.0f}", f"{cpu_ms / events * 1000:.1f} µs"
    return sink, guarantee, variant, f"{p50:,.0f}", extra, rate, ratio, cpu_us, cpu_ratio


def baseline(sink: str, arms: Iterable[str]) -> str | None:
    """The at-least-once configuration of a sink that is ours; `acknowledged` comes first."""
    ours = sorted(arm for arm in arms if parts(arm)[:2] == (sink, AT_LEAST_ONCE) and parts(arm)[2] != "native")
    usual = f"{sink}.{'.'.join(BASELINE)}"
    return usual if usual in ours else next(iter(ours), None)


def parts(arm: str) -> Configuration:
    """The sink, guarantee and variant in the name of an arm."""
    sink, guarantee, variant = arm.split(".")
    return sink, guarantee, variant


def _marked(found: Difference, form: str, none: float) -> str:
    """With `~` before it if the interval includes the value of no difference."""
    unclear = found.has_interval and not found.shows(none)
    return f"{'~ ' if unclear else ''}{_text(found, form)}"


def _text(found: Difference, form: str) -> str:
    return f"{found.median:{form}} {found.interval(form)}"
