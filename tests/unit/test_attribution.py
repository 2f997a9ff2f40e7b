"""Each fault is charged with what its own batch lost and doubled."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oncebench.judge import attribution
from oncebench.reports.checkpoint import batch_costs, checkpoint_costs, settled, sink_costs

EXPECTED: Any = SimpleNamespace(
    session_keys=["a", "b", "c"], last_partition=np.array([0, 0, 1]), last_offset=np.array([99, 250, 40])
)
PROGRESS = [
    {"kind": "batch", "batch": 0, "start_offsets": {}, "end_offsets": {"0": 100, "1": 0}},
    {"kind": "batch", "batch": 0, "start_offsets": {}, "end_offsets": {"0": 100, "1": 0}, "recovered": True},
    {"kind": "batch", "batch": 1, "start_offsets": {"0": 100, "1": 0}, "end_offsets": {"0": 300, "1": 40}},
    {"kind": "sink", "batch": 1},
]


def test_a_session_belongs_to_the_batch_that_read_its_last_event() -> None:
    assert attribution.batch_of_session(EXPECTED, PROGRESS).tolist() == [0, 1, -1]


def test_losses_and_copies_are_counted_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = np.ones((3, 20), dtype=np.int64)
    seen[0, :3] = 0
    seen[1, 5] = 4
    monkeypatch.setattr(attribution, "multiplicity", lambda _record, _expected: seen)
    record: Any = SimpleNamespace(progress=SimpleNamespace(items=PROGRESS))
    assert attribution.by_batch(record, EXPECTED) == {0: (3, 0), 1: (0, 3)}


def test_nothing_is_charged_twice_and_a_fault_that_was_not_hit_is_charged_nothing() -> None:
    faults = [{"batch": 4, "hit": True}, {"batch": 4, "hit": True}, {"batch": None, "hit": False}]
    charged = attribution.charged(faults, {4: (0, 20), 9: (1, 1)})
    assert [(fault["lost"], fault["duplicated"]) for fault in charged] == [(0, 20), (0, 0), (0, 0)]


def line(batch: int, trigger: int, t_us: int) -> dict[str, Any]:
    took = {"triggerExecution": trigger, "walCommit": 10, "commitOffsets": 20, "addBatch": trigger - 40}
    state = [{"commitTimeMs": 40, "numShufflePartitions": 2}]
    return {"kind": "batch", "t_us": t_us, "batch": batch, "input_rows": 5, "duration_ms": took, "state": state}


def test_the_first_three_batches_of_each_life_are_not_counted_as_settled(tmp_path: Any) -> None:
    progress: list[dict[str, Any]] = [{"kind": "started", "t_us": 0}]
    progress += [line(number, 100 if number > 2 else 9000, number + 1) for number in range(5)]
    progress += [{"kind": "started", "t_us": 50}, *[line(number, 9000, number + 60) for number in range(5, 8)]]
    progress += [{"kind": "sink", "t_us": 2, "batch": 3, "timings_ms": {"decide": 4.0}}]
    assert [each["batch"] for each in settled(progress)] == [3, 4]
    costs = checkpoint_costs(progress, tmp_path)
    assert (costs["wal_ms"], costs["commit_log_ms"], costs["state_commit_ms"], costs["share_of_batch"]) == (
        10,
        20,
        20,
        0.5,
    )
    assert (batch_costs(progress)["n"], batch_costs(progress)["trigger_ms"]) == (8, 100)
    assert sink_costs(progress) == {"prepare": None, "decide": 4.0, "commit": None, "total": None}
