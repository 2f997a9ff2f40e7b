"""The times between which the pipeline may have written the rows of each session."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from oncebench.audit.python.history.writing_times import CLOCK_US, writing_times
from oncebench.audit.python.model import Events, Expected, Invalid

Line = dict[str, Any]
DUE_US = 50_000_000


def expected(*last: tuple[int, int]) -> Expected:
    """Sessions whose last events stand at these (partition, offset), due at DUE_US."""
    partitions, offsets = np.array(last).T
    none = np.zeros(0, np.int64)
    rows = np.zeros((len(last), 20), np.int64)
    return Expected(
        session_keys=[str(session) for session in range(len(last))],
        key=np.arange(len(last)),
        total=rows,
        checksum=rows,
        ended_at=rows + DUE_US,
        last_partition=partitions,
        last_offset=offsets,
        events=Events(none, none, none, none),
        invalid=Invalid(none, none),
        keys=[],
    )


def batch(number: int, t_us: int, starts: dict[str, int], ends: dict[str, int]) -> Line:
    return {"kind": "batch", "batch": number, "t_us": t_us, "began_us": t_us - 1, "start_offsets": starts,
            "end_offsets": ends}  # fmt: skip


def position(t_us: int, ends: dict[str, int]) -> Line:
    return {"kind": "position", "t_us": t_us, "end_offsets": ends}


def times(lines: list[Line], *last: tuple[int, int]) -> list[tuple[float, float]]:
    from_us, until_us = writing_times(expected(*last), lines)
    return list(zip(from_us.tolist(), until_us.tolist(), strict=True))


def test_the_batches_of_a_partition_say_nothing_about_sessions_of_another() -> None:
    lines = [batch(0, 10, {"0": 0}, {"0": 5}), batch(1, 20, {"0": 5, "1": 0}, {"0": 5, "1": 5})]
    assert times(lines, (0, 4), (1, 4), (1, 0)) == [(-math.inf, 10), (9, 20), (9, 20)]


def test_a_session_that_no_line_covers_may_be_written_at_any_time() -> None:
    lines = [batch(0, 10, {"0": 0}, {"0": 5}), batch(1, 20, {"0": 5}, {"0": 6})]
    assert times(lines, (0, 6), (7, 0)) == [(-math.inf, math.inf)] * 2
    assert times([], (0, 0)) == [(-math.inf, math.inf)]


def test_a_batch_that_names_no_start_began_with_the_first_event() -> None:
    lines = [batch(0, 10, {}, {"0": 5}), batch(0, 20, {}, {"0": 5})]  # the checkpoint was lost
    assert [until for _, until in times(lines, (0, 0), (0, 4))] == [20, 20]


def test_a_position_at_the_first_event_has_not_passed_it() -> None:
    lines = [position(10, {"0": 0}), position(20, {"0": 1})]
    assert times(lines, (0, 0)) == [(DUE_US - CLOCK_US, 20)]


def test_a_position_counts_until_the_next_start_also_if_a_line_omits_it() -> None:
    lines = [position(10, {"0": 5}), position(20, {"1": 5}), position(30, {"0": 2})]
    assert [until for _, until in times(lines, (0, 4), (1, 4))] == [10, 20]
    again = [*lines[:2], {"kind": "started", "t_us": 25}, *lines[2:], position(40, {"0": 5})]
    assert [until for _, until in times(again, (0, 4), (1, 4))] == [40, 20]
