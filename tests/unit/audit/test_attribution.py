"""Each fault is charged with the lost and duplicated rows of its own batch."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oncebench.audit.python import attribution
from oncebench.audit.python.audit import multiplicity
from oncebench.audit.python.model import expected_output
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from oncebench.report.measures.checkpoint import Progress, batch_costs, checkpoint_costs, cores_of, sink_costs, split
from tests.unit.audit.audit_world import lay_out, make_record, make_world, observed_table

EXPECTED: Any = SimpleNamespace(
    session_keys=["a", "b", "c"], last_partition=np.array([0, 0, 1]), last_offset=np.array([99, 250, 40])
)
PROGRESS = [
    {"kind": "batch", "batch": 0, "start_offsets": {}, "end_offsets": {"0": 100, "1": 0}},
    # What a restart finds committed says where the batch ended, and not where it began.
    {"kind": "batch", "batch": 7, "start_offsets": {}, "end_offsets": {"0": 100, "1": 0}, "recovered": True},
    {"kind": "batch", "batch": 1, "start_offsets": {"0": 100, "1": 0}, "end_offsets": {"0": 300, "1": 40}},
    {"kind": "sink", "batch": 1},
]


def test_a_session_belongs_to_the_batch_that_read_its_last_event() -> None:
    assert attribution.batch_of_session(EXPECTED, PROGRESS).tolist() == [0, 1, -1]


def test_a_batch_range_includes_its_start_and_excludes_its_end() -> None:
    expected: Any = SimpleNamespace(
        session_keys=["a", "b", "c", "d"], last_partition=np.zeros(4, int), last_offset=np.array([0, 1, 2, 3])
    )
    lines = [{"kind": "batch", "batch": 4, "start_offsets": {}, "end_offsets": {"0": 1}}]
    lines += [{"kind": "batch", "batch": 5, "start_offsets": {"0": 1}, "end_offsets": {"0": 3}}]
    found = attribution.batch_of_session(expected, lines)
    assert (found.tolist(), found.dtype) == ([4, 5, 5, -1], np.int64)


def test_lost_and_duplicated_rows_are_counted_from_the_record() -> None:
    world = make_world(4, 2)  # all sessions with rows are in one batch
    rows = [row for at, row in enumerate(world.rows) if at != 3]
    for visible, counts in ((rows, (1, 0)), ([*world.rows, world.rows[70]], (0, 1)), ([*rows, rows[70]], (1, 1))):
        record = make_record(world, visible)
        (line,) = record.progress.items
        record = replace(record, progress=Lines(({**line, "batch": 6, "start_offsets": {}},)))
        assert attribution.by_batch(record, expected_output(record.input.table)) == {6: counts}
    assert attribution.by_batch(make_record(world, progress=Lines(())), expected_output(record.input.table)) == {}


def test_rows_above_the_log_end_belong_to_no_batch() -> None:
    world = make_world(2, 1)
    record = make_record(world, world.rows[:-1])
    placed = lay_out(world.rows)
    observed = Stream(observed_table(placed, [1] * len(placed)), complete=True)
    found = multiplicity(replace(record, observed=observed), expected_output(record.input.table))
    assert found.shape == (2, 20)
    assert (found[1, 19], int(found.sum())) == (0, 39)


def test_losses_and_copies_are_counted_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = np.ones((3, 20), dtype=np.int64)
    seen[0, :3] = 0
    seen[1, 5] = 4
    given: list[Any] = []
    monkeypatch.setattr(attribution, "multiplicity", lambda *these: given.append(these) or seen)
    record: Any = SimpleNamespace(progress=SimpleNamespace(items=PROGRESS))
    assert attribution.by_batch(record, EXPECTED) == {0: (3, 0), 1: (0, 3)}
    assert given == [(record, EXPECTED, None)]


def test_rows_are_charged_once_and_only_to_faults_that_were_hit() -> None:
    faults = [{"batch": 4, "hit": True}, {"batch": 4, "hit": True}, {"batch": None, "hit": False}]
    faults += [{"batch": 9, "hit": False}]
    charged = attribution.charged(faults, {4: (0, 20), 9: (1, 1)})
    assert [(fault["lost"], fault["duplicated"]) for fault in charged] == [(0, 20), (0, 0), (0, 0), (0, 0)]


def test_without_batches_nobody_knows_which_fault_a_row_belongs_to() -> None:
    charged = attribution.charged([{"batch": None, "hit": True}], {-1: (3, 20)}, has_batches=False)
    assert [(fault["lost"], fault["duplicated"]) for fault in charged] == [(None, None)]


US = 10_000_000  # longer than a batch below takes


def line(batch: int, trigger: int, t_us: int) -> dict[str, Any]:
    took = {"triggerExecution": trigger, "walCommit": 10, "commitOffsets": 20, "addBatch": trigger - 40}
    state = [{"commitTimeMs": 40, "numShufflePartitions": 2}]
    return {"kind": "batch", "t_us": t_us, "batch": batch, "input_rows": 5, "duration_ms": took, "state": state}


def test_the_first_three_batches_of_each_attempt_do_not_count_as_settled(tmp_path: Any) -> None:
    progress: list[dict[str, Any]] = [{"kind": "started", "t_us": 0}]
    progress += [line(number, 100 if number > 2 else 9000, number + 1) for number in range(5)]
    progress += [{"kind": "started", "t_us": 50}, *[line(number, 9000, number + 60) for number in range(5, 8)]]
    progress += [{"kind": "sink", "t_us": 2, "batch": 3, "timings_ms": {"decide": 4.0}}]
    progress_lines = Progress(progress, -US, 2)
    assert [each["batch"] for each in progress_lines.settled()] == [3, 4]
    costs = checkpoint_costs(progress_lines, tmp_path)
    assert (costs["wal_ms"], costs["commit_log_ms"], costs["state_commit_ms"], costs["share_of_batch"]) == (
        10,
        20,
        20,
        0.5,
    )
    assert (costs["bytes"], costs["files"]) == (0, 0)
    assert (batch_costs(progress_lines)["n"], batch_costs(progress_lines)["trigger_ms"]) == (8, 100)
    assert sink_costs(progress_lines) == {"prepare": None, "decide": 4.0, "commit": None, "total": None}


def test_the_parts_of_a_batch_add_up_to_its_duration() -> None:
    progress: list[dict[str, Any]] = [{"kind": "started", "t_us": 0}]
    progress += [line(number, 100, number + 1) for number in range(5)]
    progress[-1]["duration_ms"] |= {"queryPlanning": 5, "latestOffset": 2, "getBatch": 1}
    took = {"prepare": 8.0, "decide": 4.0, "total": 30.0}
    progress += [{"kind": "sink", "t_us": 2, "batch": batch, "timings_ms": took} for batch in (3, 4)]
    parts = split(Progress(progress, -US, 2))
    assert parts == {
        "planning": 4.0, "rest": 34.0, "state": 20.0, "prepare": 8.0, "decide": 4.0, "commit": 0.0, "offset_log": 10.0,
        "commit_log": 20.0, "total": 100.0,
    }  # fmt: skip
    assert set(split(Progress([], -US, 2)).values()) == {None}


def test_a_batch_that_began_before_the_warm_up_was_over_does_not_count() -> None:
    progress = [line(number, 100, (number + 1) * 1_000_000) for number in range(8)]
    began_us = 6 * 1_000_000 - 100_000  # of batch 5
    assert [each["batch"] for each in Progress(progress, began_us, 2).settled()] == [5, 6, 7]
    assert [each["batch"] for each in Progress(progress, began_us + 1, 2).settled()] == [6, 7]


@pytest.mark.parametrize(("cores", "waited_ms"), [(1, 160), (2, 80), (8, 20), (None, 20)])
def test_state_commits_without_a_core_each_wait_in_turn(cores: int | None, waited_ms: float) -> None:
    batch = {"state": [{"commitTimeMs": 160, "numShufflePartitions": 8}]}
    assert Progress([], 0, cores).state_commit_ms(batch) == waited_ms


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[2]", 2), ("local[4, 1]", 4), ("local-cluster[2,3,1024]", 6), ("local[*]", None),
     ("spark://h:7077", None)],
)  # fmt: skip
def test_the_master_name_gives_the_number_of_parallel_tasks(master: str, cores: int | None) -> None:
    assert cores_of(master) == cores
    assert cores_of(master, workers=3) == 3, "the run starts a cluster, and the name of the master has no effect"


def test_rows_of_batches_without_a_fault_are_uncharged() -> None:
    faults = [{"hit": True, "batch": 6}, {"hit": False, "batch": None}]
    assert attribution.uncharged(faults, {6: (1, 2), 7: (3, 0), -1: (0, 4)}) == {"lost": 3, "duplicated": 4}
    assert attribution.uncharged(faults, {6: (1, 2)}) == {"lost": 0, "duplicated": 0}


def test_a_checkpoint_that_is_gone_is_unknown_and_not_empty(tmp_path: Any) -> None:
    costs = checkpoint_costs(Progress([], 0, 2), tmp_path / "gone")
    assert (costs["bytes"], costs["files"]) == (None, None)
