"""The cells of the fault matrix: the faults of each row and family.

The runs are long enough for their faults.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncebench.delivery.failpoints import FIRST_BATCH, POINTS, parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.run.attempts.random_kills import RANDOM_KILL_MEAN_S
from oncebench.run.extra_load.warm_up import WARM_UP_BATCHES, WARM_UP_SESSIONS
from oncebench.scenario.cell import Cell
from oncebench.scenario.matrix import cells as matrix
from oncebench.scenario.matrix.families import FAMILIES, RANDOM, REPLAY, columns, named


def row(sink: str, variant: str) -> matrix.Row:
    return next(row for row in matrix.rows([sink]) if row.support.variant == variant)


def test_the_matrix_has_every_fault_and_a_kill_at_every_point() -> None:
    texts = [text.removesuffix(REPLAY) for family in FAMILIES.values() for text in family.faults]
    assert {parse_fault(text).action for text in texts} == set(FAULTS)
    assert columns("kills") == tuple(f"{point}:kill" for point in POINTS)


def test_each_fault_has_its_own_batch_and_pairs_share_one() -> None:
    kafka = row("kafka", "two-phase")
    assert all(text.endswith("@after=2") for text in matrix.chain(kafka, "kills")[1:])
    pairs = matrix.chain(kafka, "pairs")
    assert pairs[:3] == ("mid-write:kill", "after-prepare:kill", "after-prepare:kill@after=2")
    assert columns("pairs")[0] == "mid-write:kill, after-prepare:kill"


def test_a_row_has_only_possible_faults() -> None:
    assert matrix.chain(row("kafka", "two-phase"), "postgres") == ()
    assert not any("hijack" in text for text in matrix.chain(row("kafka", "acknowledged"), "broker"))
    assert any("hijack" in text for text in matrix.chain(row("kafka", "idempotent"), "broker"))
    assert matrix.chain(row("postgres", "upsert"), "postgres")


def test_the_runs_of_a_row_are_long_enough_and_differ_by_seed() -> None:
    cells = matrix.cells([row("kafka", "two-phase")], ["kills"], Cell("", "", "", seed=5), matrix.seeds_for(3))
    assert [cell.seed for cell in cells] == [5, 6, 7]
    priming = WARM_UP_BATCHES * WARM_UP_SESSIONS * 100
    for cell in cells:
        assert cell.max_events_per_batch is not None
        batches = (priming + cell.sessions * 100) / cell.max_events_per_batch
        assert batches >= FIRST_BATCH + 3 * len(POINTS) + 1  # three for each fault, and the last one's replay


def test_random_kills_have_enough_work() -> None:
    cells = matrix.cells([row("kafka", "two-phase")], [RANDOM], Cell("", "", ""), matrix.seeds_for(3))
    assert len(cells) == 3
    assert sum(cell.random_kills for cell in cells) >= 100
    assert not any(cell.faults for cell in cells)
    for cell in cells:
        assert cell.max_events_per_batch is not None
        seconds = cell.sessions * 100 / cell.max_events_per_batch * cell.trigger_ms / 1000
        assert seconds >= cell.random_kills * RANDOM_KILL_MEAN_S  # at least: a batch may take longer


def test_every_fault_runs_once_before_any_runs_twice() -> None:
    chosen = [row("kafka", "two-phase"), row("files-jsonl", "two-phase")]
    cells = matrix.cells(chosen, ["kills", "lives"], Cell("", "", "", seed=5), matrix.seeds_for(2))
    assert [cell.seed for cell in cells] == [5, 5, 5, 5, 6, 6, 6, 6]
    assert len({(cell.sink, cell.faults) for cell in cells[:4]}) == 4


def test_timeout_outages_are_for_two_phase_transactions() -> None:
    rows = [row("kafka", "two-phase"), row("kafka", "idempotent"), row("postgres", "two-phase")]
    rows += [row("pravega", "two-phase"), row("files-jsonl", "two-phase")]
    cells = matrix.cells(rows, ["timeout"], Cell("", "", ""), matrix.seeds_for(1))
    assert [(cell.sink, cell.variant) for cell in cells] == [("kafka", "two-phase"), ("pravega", "two-phase")]
    for cell in cells:
        assert all((parse_fault(text).seconds or 0) * 1000 > 2 * cell.transaction_timeout_ms for text in cell.faults)


def test_no_link_cut_follows_a_delayed_commit() -> None:
    actions = [parse_fault(text).action for text in matrix.chain(row("kafka", "two-phase"), "link")]
    assert "cut-link" in actions
    assert "cut-link" not in actions[actions.index("late-commit") :]


@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_each_step_has_a_run_of_twenty_leader_kills(variant: str) -> None:
    kafka = row("kafka", variant)
    for family in (name for name in FAMILIES if name.startswith("leader-")):
        (cell,) = matrix.cells([kafka], [family], Cell("", "", ""), matrix.seeds_for(1))
        (column,) = {str(named([text])) for text in cell.faults}
        assert column in columns(family)
        assert (len(cell.faults), cell.brokers) == (20, 3)
        assert all(text.endswith("@after=2") for text in cell.faults[1:])
    assert matrix.chain(row("kafka", "acknowledged"), "leader-prepare") == ()
    assert matrix.chain(row("postgres", "two-phase"), "leader-prepare") == ()


def test_three_brokers_leave_out_what_needs_one() -> None:
    kafka = row("kafka", "two-phase")
    one, three = (matrix.chain(kafka, "link", replace(matrix.DEFAULT, brokers=brokers)) for brokers in (1, 3))
    assert any("cut-link" in text for text in one)
    assert not any("cut-link" in text for text in three)
    assert matrix.chain(kafka, "kills", replace(matrix.DEFAULT, brokers=3)) == matrix.chain(kafka, "kills")
    _, not_here = matrix.left_out([kafka], ["link"], replace(matrix.DEFAULT, brokers=3))
    assert "after-prepare:cut-link:3" in not_here["its proxy is in front of one broker only. Leave out --brokers"]
    (cell,) = matrix.cells([kafka], ["kills"], Cell("", "", "", brokers=3), matrix.seeds_for(1))
    assert cell.brokers == 3
