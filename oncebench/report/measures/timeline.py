"""What a run looked like from second to second: events sent, rows seen, their latencies, and the pipeline's lag.

Promise: pure functions of what was recorded, counted from the start of the load; nothing is smoothed. A step without
rows has no latency (null), not 0. `steadiness` tells whether a load was one that the pipeline keeps up with: the slope
of its lag, and whether latencies rose (Theodolite's and ESPBench's conditions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.audit.python.audit import Sightings
from oncebench.record import Record
from oncebench.report.measures.batch_times import ended_us, took_us

Ints = npt.NDArray[np.int64]
MAX_STEPS = 300  # more than a plot has room for
US = 1_000_000
# Of a line through lags, or of thirds of latencies.
FEWEST_STEPS = 6
# A load of 15 s has its last event due a moment before: at 100 events/s, the slowest that is searched, 10 ms. Its last
# second is whole all the same.
MOMENT_S = 0.05


def timeline(record: Record, sightings: Sightings) -> dict[str, Any]:
    """From `start_us` on (epoch µs, where faults have theirs), per step of `step_s` seconds: `sent` (events that
    Kafka acknowledged), `visible` (rows first seen), `p50_ms` and `p99_ms` of these rows, `lag` (events in the topic
    that no finished batch has read, at the step's end)."""
    start = record.plan.started_us
    acked = record.ledger.acked_us[record.ledger.acked_us > 0]
    ends = [int(times.max()) for times in (acked, sightings.seen_us) if len(times)]
    seconds = max(1, ceil((max(ends, default=start) - start) / US))
    step_s = ceil(seconds / MAX_STEPS)
    edges = start + np.arange(ceil(seconds / step_s) + 1, dtype=np.int64) * step_s * US
    seen_us, latency_ms = sightings.seen_us, sightings.latency_us / 1000
    order = np.argsort(seen_us, kind="stable")
    at = np.searchsorted(seen_us[order], edges)
    steps = [latency_ms[order[low:high]] for low, high in pairwise(at)]
    return {
        "start_us": start,
        "step_s": step_s,
        "sent": _counts(acked, edges),
        "visible": _counts(seen_us, edges),
        "p50_ms": [_quantile(step, 0.5) for step in steps],
        "p99_ms": [_quantile(step, 0.99) for step in steps],
        "lag": _lag(record, np.sort(acked), edges[1:]),
    }


def steadiness(shown: Mapping[str, Any], rate: float | str, warmup_s: float, load_s: float) -> dict[str, float | None]:
    """`lag_slope`: how fast the lag grew while the load lasted, as a share of the load, and `lag_slope_error`, the
    standard error of that (a lag goes up and down with every batch); `latency_rise`: by how much the median latency of
    the load's last third was above that of its first, as a share of it. After the warm-up; None where there is too
    little (fewer than FEWEST_STEPS, of latency: with rows in them) or no rate."""
    first, last = ceil(warmup_s / shown["step_s"]), int((load_s + MOMENT_S) // shown["step_s"])
    lag = np.array(shown["lag"][first:last], dtype=float)
    p50 = [value for value in shown["p50_ms"][first:last] if value is not None]
    slope = error = rise = None
    if not isinstance(rate, str) and len(lag) >= FEWEST_STEPS:
        line, spread = np.polyfit(np.arange(len(lag)) * shown["step_s"], lag, 1, cov=True)
        slope, error = round(float(line[0]) / rate, 4), round(float(spread[0, 0]) ** 0.5 / rate, 4)
        third = len(p50) // 3
        if len(p50) >= FEWEST_STEPS and (early := float(np.median(p50[:third]))):
            rise = round((float(np.median(p50[-third:])) - early) / early, 4)
    return {"lag_slope": slope, "lag_slope_error": error, "latency_rise": rise}


def events_after(record: Record, from_us: int) -> int:
    """Events of the load that the pipeline had still to read at a time (epoch µs): what its work from then on was for.
    Of the batch in hand then so much counts as read as had passed of its time."""
    before = record.input.table.num_rows - int(np.count_nonzero(record.ledger.acked_us > 0))
    read = float(before)
    batches = _batches(record)
    for line, (done_us, position) in zip(batches, _positions(batches), strict=True):
        # Of a batch that a life only found done already, Spark tells no time.
        passed = min(1.0, (from_us - done_us) / max(1.0, took_us(line)) + 1)
        if passed <= 0:
            break
        read += max(0.0, position - read) * passed
    left: int = round(record.input.table.num_rows - read)
    return left


def _counts(times_us: Ints, edges: Ints) -> list[int]:
    counted: list[int] = np.histogram(times_us, edges)[0].tolist()
    return counted


def _quantile(values_ms: npt.NDArray[np.float64], share: float) -> float | None:
    return round(float(np.quantile(values_ms, share, method="inverted_cdf")), 1) if len(values_ms) else None


def _lag(record: Record, acked: Ints, at: Ints) -> list[int]:
    """Events in the topic minus those that finished batches have read; what was there before the load counts too."""
    before = record.input.table.num_rows - len(acked)
    positions = _positions(_batches(record))
    times = np.array([t_us for t_us, _ in positions], dtype=np.int64)
    done = np.array([0, *(read for _, read in positions)], dtype=np.int64)
    read = done[np.searchsorted(times, at, side="right")]
    lag: list[int] = (before + np.searchsorted(acked, at, side="right") - read).tolist()
    return lag


def _batches(record: Record) -> list[Mapping[str, Any]]:
    """Lines of finished batches, in their order."""
    return sorted((line for line in record.progress.items if line["kind"] == "batch"), key=ended_us)


def _positions(batches: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """(when, events read by then) after each finished batch."""
    position: dict[str, int] = {}
    found = []
    for line in batches:
        for partition, offset in line["end_offsets"].items():
            position[partition] = max(offset, position.get(partition, 0))
        found.append((ended_us(line), sum(position.values())))
    return found
