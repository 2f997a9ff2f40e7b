"""Batches of the whole pipeline: which arm gets which batch, and that all have the same size."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from oncebench.delivery.errors import QueryDied
from oncebench.experiments.batch_input import bytes_needed
from oncebench.experiments.batches import order_of
from oncebench.experiments.run_batches import Plan, _why
from oncebench.experiments.whole_batches import (
    WARM_ROUNDS,
    _cpu_s,
    arm_of,
    batches_of,
    fewest_events,
    refuse_other_size,
)
from oncebench.observe import procfs

ARMS = ["at-least-once", "idempotent", "two-phase"]


def test_each_round_has_a_batch_of_each_arm() -> None:
    found = [arm_of(number, partial(order_of, seed=1), ARMS) for number in range(batches_of(len(ARMS), 4))]
    for at in range(WARM_ROUNDS + 4):
        assert sorted(arm for each, arm in found if each == at) == sorted(ARMS)


def test_a_batch_of_another_size_is_refused() -> None:
    for number, size in enumerate((50_000, 49_990, 50_010)):
        refuse_other_size(number, size, 50_000)
    with pytest.raises(QueryDied, match=r"batch 1 had 30,000 events instead of 50,000"):
        refuse_other_size(1, 30_000, 50_000)


@pytest.mark.parametrize("partitions", [1, 2, 7, 256])
def test_the_fewest_events_of_a_batch_survive_the_rounding_of_each_partition(partitions: int) -> None:
    fewest = fewest_events(partitions)
    refuse_other_size(0, fewest - partitions, fewest)
    with pytest.raises(QueryDied):
        refuse_other_size(0, fewest - 1 - partitions, fewest - 1)


def test_the_time_limit_grows_with_the_events_of_a_batch() -> None:
    small, large, rows = (Plan(1000, events, 10, 2, 1) for events in (1000, 1_000_000, None))
    assert (small.batches(5), rows.batches(5)) == (80, 150)
    assert large.limit_s(5) > 80 * 100  # two cores take 10 s for a million events
    assert rows.limit_s(5) == 120 + 150 * 10


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("warning\nstopped: batch 0 had 4. Run it again.\n", "batch 0 had 4. Run it again"),
        ("refused to start: no table. Make it.\nlate warning of the JVM\n", "refused to start: no table. Make it"),
        ("Traceback\nValueError: x\n\n", "ValueError: x"),
        ("", "no message"),
    ],
)  # fmt: skip
def test_the_end_of_the_process_is_told_in_its_own_words(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "batches.log").write_text(text)
    assert _why(tmp_path / "batches.log") == why


def test_the_cpu_time_includes_processes_whose_disk_use_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str) -> bytes:
        if path.endswith("/io"):
            raise PermissionError(path)  # PostgreSQL has a user of its own, and a container no CAP_SYS_PTRACE
        return Path(path).read_bytes()

    monkeypatch.setattr(procfs, "_read_file", read)
    before_s = _cpu_s(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        deadline = time.monotonic() + 20
        while _cpu_s(os.getpid()) < before_s + 0.05 and time.monotonic() < deadline:
            time.sleep(0.02)
        used_s = _cpu_s(os.getpid()) - before_s
        child.kill()
    assert used_s >= 0.05


def test_the_disk_space_of_a_series_is_above_a_measured_one() -> None:
    assert bytes_needed(2_700_000, own_kafka=True) > 577e6  # three sinks, 135 batches of 20,000 events
    assert bytes_needed(1_000_000, own_kafka=False) < bytes_needed(1_000_000, own_kafka=True) / 1.5
