"""Every percentile is a value that was really measured (nearest rank)."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from loadgen.status import lateness
from oncebench.audit.python.latency import Distribution
from oncebench.report.measures.recovery import Observed, Recovery, recoveries
from oncebench.report.tables import recovery_table
from oncebench.report.tables.batches import percentiles

SIZES = [1, 2, 3, 10, 19, 20, 21, 99, 100, 101, 1000]


def nearest_rank(values: list[float], percent: int) -> float:
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


@pytest.mark.parametrize("size", SIZES)
def test_all_percentiles_have_one_definition(size: int) -> None:
    drawn = random.Random(size)
    ms = [float(drawn.randrange(1, 10**6)) for _ in range(size)]
    p50, p95, p99 = (nearest_rank(ms, percent) for percent in (50, 95, 99))
    found = Distribution.of(np.array(ms))
    assert (found.p50, found.p95, found.p99) == (p50, p95, p99)
    assert percentiles(ms) == (p50, p95)
    us = np.array([round(each * 1000) for each in ms])
    late = lateness(np.ones(size, dtype=np.int64), us + 1)
    assert (late.p50, late.p99) == (p50, p99)


@pytest.mark.parametrize("size", SIZES)
def test_recoveries_use_the_same_percentiles(size: int) -> None:
    drawn = random.Random(size)
    ms = [float(drawn.randrange(100, 10**5, 100)) for _ in range(size)]
    faults = [
        {"fault": "mid-write:kill@after=2", "t_us": at, "recovery": Recovery(first_visible=each).as_json()}
        for at, each in enumerate(ms)
    ]
    cell = {"sink": "kafka", "guarantee": "exactly-once", "variant": "two-phase"}
    ((_, rows),) = recovery_table.overall_tables([{"cell": cell, "verdict": "kept", "faults": faults}]).items()
    expected = tuple(f"{nearest_rank(ms, percent) / 1000:,.1f}" for percent in (50, 95))
    assert [row[2:] for row in rows if row[0] == "first row s"] == [expected]


def test_a_row_as_late_as_the_measured_p99_has_caught_up() -> None:
    latency = np.array([1_000_000, 2_000_000], dtype=np.int64)  # the p99 before the fault is the larger value, 2 s
    after = np.arange(21_000_000, 41_000_000, 1_000_000, dtype=np.int64)
    seen = np.concatenate(([10_000_000, 11_000_000], after))
    observed = Observed.of(
        [{"t_us": 13_000_000, "event": "pipeline-killed"}], [{"kind": "running", "t_us": 20_000_000}],
        seen, np.concatenate((latency, np.full(len(after), 1_995_000))), 0, True,
    )  # fmt: skip
    (found,) = recoveries([{"fault": "mid-write:kill", "t_us": 12_000_000, "batch": 1}], observed)
    assert found.caught_up == found.first_visible == 9_000.0
