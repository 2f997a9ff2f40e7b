"""The windows workload: which events are late, and which events wait for older ones."""

from pathlib import Path

import numpy as np
import pytest

from loadgen.config import LoadConfig
from loadgen.errors import ConfigError
from loadgen.plan import plan_load
from loadgen.workloads import LATE_BY_US, LATE_SEQ, MOST_AHEAD_US, SESSIONS, WINDOWS, Order
from pipeline.workloads.settings import DELAY_MS

STARTED_US = 1_790_000_000_000_000


def config(folder: Path, workload: str) -> LoadConfig:
    return LoadConfig("localhost:1", "input", 1000.0, 25, folder / workload, seed=3, workload=workload)


def test_windows_differ_from_sessions_by_late_events_alone(tmp_path: Path) -> None:
    plain = plan_load(config(tmp_path, SESSIONS.name), lambda: STARTED_US)
    windows = plan_load(config(tmp_path, WINDOWS.name), lambda: STARTED_US)
    moved = np.flatnonzero(plain.scheduled_us != windows.scheduled_us)
    assert set(zip(windows.session[moved].tolist(), windows.seq[moved].tolist(), strict=True)) == {
        (0, LATE_SEQ), (10, LATE_SEQ), (20, LATE_SEQ),
    }  # fmt: skip
    assert (plain.scheduled_us[moved] - windows.scheduled_us[moved]).tolist() == [LATE_BY_US] * 3
    assert (plain.session == windows.session).all()
    assert (plain.seq == windows.seq).all()


def test_no_event_passes_an_older_one_without_an_answer() -> None:
    due_us = np.arange(10) * 1_000_000
    acked_us = np.zeros(10, np.int64)
    order = Order(due_us, acked_us, 2_000_000)
    assert order.newest_us(0) == 2_000_000
    assert order.newest_us(3) == 2_000_000
    acked_us[[0, 2]] = 5
    assert order.newest_us(3) == 3_000_000
    acked_us[1] = -7  # failed: it is not in the topic
    assert order.newest_us(3) == 5_000_000


def test_sessions_wait_for_no_answer() -> None:
    order = Order(np.arange(10), np.zeros(10, np.int64), SESSIONS.most_ahead_us)
    assert order.newest_us(5) == 2**63 - 1


def test_the_watermark_stays_behind_every_event_to_come() -> None:
    assert DELAY_MS * 1000 > MOST_AHEAD_US


def test_an_unknown_workload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^workload: 'joins' is not one of sessions, windows, records$"):
        config(tmp_path, "joins")
