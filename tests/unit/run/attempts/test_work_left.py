"""How long the pipeline still has work, as the draw of a random kill sees it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.run.attempts.work_left import BACKLOG_S, WorkLeft
from oncebench.run.progress import RunProgress
from oncebench.scenario.cell import Cell

TEN_S = Cell("kafka", "exactly-once", "two-phase", rate=1000.0, sessions=100)
FLAT_OUT = replace(TEN_S, rate="max")
LIMITED = replace(TEN_S, max_events_per_batch=300, trigger_ms=1000)


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def left(
    folder: Path, cell: Cell, read: int, after_s: float, batch_s: float | None = 3.0, standstill_s: float = 0.0
) -> float:
    clock, progress = Clock(), RunProgress(folder, None)
    work = WorkLeft(cell, progress, clock)
    progress.sent_ahead, progress.position, progress.batch_s = 500, {"0": read}, batch_s
    clock.now += after_s
    return work.seconds(standstill_s)


@pytest.mark.parametrize(
    ("cell", "read", "after_s", "expected"),
    [
        (TEN_S, 500, 0.0, 10.0),
        (TEN_S, 7_500, 8.5, 3.0),  # the newest batch took longer than the rest of the load
        (TEN_S, 10_499, 25.0, 3.0),
        (TEN_S, 10_500, 25.0, 0.0),
        (LIMITED, 4_500, 9.0, 20.0),  # 6,000 events, 300 a batch, at least a second each
        (FLAT_OUT, 500, 25.0, 3.0),
    ],
)
def test_work_lasts_as_long_as_the_load_and_the_batches_of_its_backlog(
    tmp_path: Path, cell: Cell, read: int, after_s: float, expected: float
) -> None:
    assert left(tmp_path, cell, read, after_s) == expected


def test_the_load_continues_while_the_pipeline_stands_still_and_a_backlog_does_not(tmp_path: Path) -> None:
    assert left(tmp_path, TEN_S, 500, 1.0, standstill_s=4.0) == 5.0
    assert left(tmp_path, LIMITED, 4_500, 1.0, standstill_s=60.0) == 20.0


def test_without_a_batch_the_work_of_a_flat_out_load_is_unknown(tmp_path: Path) -> None:
    assert left(tmp_path, FLAT_OUT, 0, 25.0, batch_s=None) == math.inf
    assert left(tmp_path, TEN_S, 9_000, 25.0, batch_s=None) == BACKLOG_S  # an engine that reports positions only


def test_restarts_that_outlast_the_load_leave_time_for_a_replay(tmp_path: Path) -> None:
    assert left(tmp_path, TEN_S, 500, 1.0, batch_s=0.5, standstill_s=60.0) == BACKLOG_S
