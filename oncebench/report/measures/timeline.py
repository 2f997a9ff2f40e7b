"""A run second by second: events sent, rows seen, their latencies, and the pipeline's lag.

Promise: pure functions of a record, counted from the start of the load. Nothing is smoothed. A step without
rows has no latency (null), not 0. `steadiness` measures whether the pipeline kept up with its load: the slope of the
lag, and the rise of the latency (the conditions of Theodolite and ESPBench).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.audit.python.audit import Sightings
from oncebench.audit.python.latency import Distribution
from oncebench.record import Record
from oncebench.record.schema import POSITION, READ, RUNNING
from oncebench.report.measures.batch_times import ended_us, took_us
from oncebench.scenario.cell import Cell

Ints = npt.NDArray[np.int64]
MAX_STEPS = 300  # a plot has no room for more
US = 1_000_000
# The fewest steps for a line through lags, or for thirds of latencies.
FEWEST_STEPS = 6
# The last event of a load of 15 s is due a moment before its end: 10 ms before at 100 events/s, the lowest rate that is
# searched. Its last second counts as complete.
MOMENT_S = 0.05


def timeline(record: Record, sightings: Sightings) -> dict[str, Any]:
    """Figures per step of `step_s` seconds, from `start_us` on (epoch µs).

    `sent`: events that Kafka acknowledged. `visible`: rows first seen. `p50_ms`, `p99_ms`: latencies of these rows
    (nearest rank). `lag`: events in the topic that no finished batch or checkpoint has read, at the end of the step.
    """
    start = record.plan.started_us
    acked = record.ledger.acked_us[record.ledger.acked_us > 0]
    ends = [int(times.max()) for times in (acked, sightings.seen_us) if len(times)]
    seconds = max(1, ceil((max(ends, default=start) - start) / US))
    step_s = ceil(seconds / MAX_STEPS)
    edges = start + np.arange(ceil(seconds / step_s) + 1, dtype=np.int64) * step_s * US
    seen_us, latency_ms = sightings.seen_us, sightings.latency_us / 1000
    order = np.argsort(seen_us, kind="stable")
    at = np.searchsorted(seen_us[order], edges)
    steps = [Distribution.of(latency_ms[order[low:high]]) for low, high in pairwise(at)]
    return {
        "start_us": start,
        "step_s": step_s,
        "sent": _counts(acked, edges),
        "visible": _counts(seen_us, edges),
        "p50_ms": [_rounded(step.p50) for step in steps],
        "p99_ms": [_rounded(step.p99) for step in steps],
        "lag": _lag(record, np.sort(acked), edges[1:]),
    }


def steadiness(steps: Mapping[str, Any], cell: Cell, load_s: float) -> dict[str, float | None]:
    """Whether the pipeline kept up with its load, measured after the warm-up.

    `lag_slope`: how fast the lag grew during the load, as a share of the load. `lag_slope_error`: its standard error,
    because the lag rises and falls with every batch. In n trigger intervals, a lag that does not grow has a slope of up
    to 1/n², so the error is at least half of that. `latency_rise`: by how much the median latency of the load's last
    third exceeds the median of its first third, as a share. None without a constant rate, because the lag and the
    latency of a pipeline that keeps up follow the rate. None also with fewer than FEWEST_STEPS steps (for latency:
    steps with rows).
    """
    rate, step_s = cell.rate, steps["step_s"]
    first, last = ceil(cell.warmup_s / step_s), int((load_s + MOMENT_S) // step_s)
    lag = np.array(steps["lag"][first:last], dtype=float)
    p50 = [value for value in steps["p50_ms"][first:last] if value is not None]
    slope = error = rise = None
    if not isinstance(rate, str) and cell.shape == "constant" and len(lag) >= FEWEST_STEPS:
        # Not scipy.stats.linregress, whose standard error of a perfectly straight line is nan.
        line, spread = np.polyfit(np.arange(len(lag)) * step_s, lag, 1, cov=True)
        swing = (cell.trigger_ms / 1000 / (len(lag) * step_s)) ** 2
        slope, error = float(line[0]) / rate, max(float(spread[0, 0]) ** 0.5 / rate, swing / 2)
        slope, error = round(slope, 4), round(error, 4)
        third = len(p50) // 3
        if len(p50) >= FEWEST_STEPS and (early := float(np.median(p50[:third]))):
            rise = round((float(np.median(p50[-third:])) - early) / early, 4)
    return {"lag_slope": slope, "lag_slope_error": error, "latency_rise": rise}


def events_after(record: Record, from_us: int) -> int:
    """Events of the load that the pipeline had still to read at a time (epoch µs).

    The batch (or step of the position) that was running then counts as read by the share of its time that had passed.
    An engine may report each partition by itself, so several steps may have been running.
    """
    earlier = record.input.table.num_rows - int(np.count_nonzero(record.ledger.acked_us > 0))
    left = float(record.input.table.num_rows - earlier)
    for began_us, done_us, events in _reads(record):
        # Spark reports no time for a batch that an attempt only found completed.
        passed = min(1.0, (from_us - done_us) / max(1, done_us - began_us) + 1)
        of_load = max(0, events - earlier)
        earlier -= events - of_load
        left -= of_load * max(0.0, passed)
    return round(left)


def _counts(times_us: Ints, edges: Ints) -> list[int]:
    counted: list[int] = np.histogram(times_us, edges)[0].tolist()
    return counted


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 1)


def _lag(record: Record, acked: Ints, at: Ints) -> list[int]:
    """Events in the topic that no finished batch has read, including those from before the load."""
    before = record.input.table.num_rows - len(acked)
    reads = _reads(record)
    times = np.array([done_us for _, done_us, _ in reads], dtype=np.int64)
    done = np.cumsum([0, *(events for _, _, events in reads)], dtype=np.int64)
    read = done[np.searchsorted(times, at, side="right")]
    lag: list[int] = (before + np.searchsorted(acked, at, side="right") - read).tolist()
    return lag


def _reads(record: Record) -> list[tuple[int, int, int]]:
    """Returns (began, done, new events read) of each finished batch, in the order of their ends.

    For an engine without batches: of each step of its position, which began when it had reached the step before. The
    first step of an attempt began when the attempt ran.
    """
    position: dict[str, int] = {}
    since: dict[str, int] = {}
    running_us = 0
    found = []
    lines = [line for line in record.progress.items if line["kind"] in READ or line["kind"] == RUNNING]
    for line in sorted(lines, key=ended_us):
        done_us = ended_us(line)
        if line["kind"] == RUNNING:
            since, running_us = {}, done_us
            continue
        began_us = done_us - took_us(line)
        if line["kind"] == POSITION:
            first_us = running_us or done_us
            began_us = max((since.get(partition, first_us) for partition in line["end_offsets"]), default=done_us)
        before = sum(position.values())
        for partition, offset in line["end_offsets"].items():
            position[partition] = max(offset, position.get(partition, 0))
            since[partition] = done_us
        found.append((began_us, done_us, sum(position.values()) - before))
    return found
