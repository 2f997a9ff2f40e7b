"""A sweep changes one thing, and the load lasts as long as before."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from oncebench.errors import ExitCode, UserError
from oncebench.report.measures.metrics import BY_NAME
from oncebench.report.tables import cost_table
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.rounds import in_rounds
from oncebench.scenario.sweeps import FEWEST_TRIGGERS, SWEEPS
from tests.unit.report.test_tables import report

CELL = Cell("kafka", "exactly-once", "two-phase", rate=1000.0, sessions=100)


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_changes_only_its_field_and_the_sessions(name: str) -> None:
    swept = list(SWEEPS[name].of([CELL]))
    assert len(swept) == len(set(swept)) == len(SWEEPS[name].values)
    for cell in swept:
        changed = {field.name for field in fields(Cell) if getattr(cell, field.name) != getattr(CELL, field.name)}
        assert changed <= {SWEEPS[name].field, "sessions"}


def test_a_swept_load_keeps_its_duration_and_has_enough_triggers() -> None:
    assert {cell.sessions * 100 / float(cell.rate) for cell in SWEEPS["rate"].of([CELL])} == {10.0}
    for cell in SWEEPS["trigger"].of([CELL]):
        assert cell.sessions * 100 / float(cell.rate) >= max(10.0, FEWEST_TRIGGERS * cell.trigger_ms / 1000)


def test_a_load_at_maximum_rate_keeps_its_sessions() -> None:
    flat_out = replace(CELL, rate="max")
    assert {cell.sessions for cell in SWEEPS["trigger"].of([flat_out])} == {100}


def test_a_sweep_of_the_rate_refuses_a_load_at_maximum_rate() -> None:
    with pytest.raises(UserError, match="Give a number as --rate too") as refused:
        list(SWEEPS["rate"].of([CELL, replace(CELL, rate="max", sessions=16_000)]))
    assert refused.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("name", SWEEPS)
def test_a_replayed_file_is_sent_whole_at_each_value(name: str) -> None:
    replayed = replace(CELL, workload="records", records="orders.jsonl", sessions=5)
    assert {cell.sessions for cell in SWEEPS[name].of([replayed])} == {5}


@pytest.mark.parametrize("name", SWEEPS)
def test_cells_that_are_compared_run_one_after_the_other(name: str) -> None:
    sweep, other = SWEEPS[name], replace(CELL, guarantee="at-least-once", variant="acknowledged")
    swept = list(sweep.of([CELL, other]))
    for mine, theirs in zip(swept[::2], swept[1::2], strict=True):
        assert getattr(mine, sweep.field) == getattr(theirs, sweep.field)
        assert (mine.variant, theirs.variant) == (CELL.variant, other.variant)


@pytest.mark.parametrize("name", SWEEPS)
def test_the_name_of_a_swept_cell_has_its_value(name: str) -> None:
    names = [SWEEPS[name].name(cell) for cell in SWEEPS[name].of([CELL])]
    assert all(each.startswith(CELL.title) for each in names)
    assert len(names) == len(set(names))
    for each in names:
        words = each.removeprefix(CELL.title).strip(", ").split()
        picked = [other for other in names if all(word in other for word in words)]
        assert picked == [each] or name == "open-sessions"  # there 1000 is part of 10000


def test_rounds_alternate_and_have_their_own_seeds() -> None:
    other, killed = replace(CELL, variant="idempotent"), replace(CELL, faults=("mid-write:kill",))
    assert [cell.seed for cell in in_rounds([killed], 3)] == [killed.seed, killed.seed + 1, killed.seed + 2]
    rounds = in_rounds([CELL, other, killed], 3)
    assert [(cell.variant, cell.faulted, cell.seed) for cell in rounds] == [
        ("two-phase", False, 1), ("idempotent", False, 1), ("two-phase", True, 1),
        ("idempotent", False, 2), ("two-phase", False, 2),
        ("two-phase", False, 3), ("idempotent", False, 3),
    ]  # fmt: skip
    assert PROFILES["full"].repeat >= 5


def swept(trigger_ms: int, batch_ms: float, guarantee: str, variant: str) -> dict[str, Any]:
    cell = {"sink": "kafka", "guarantee": guarantee, "variant": variant, "faults": [], "random_kills": 0}
    config = {"sink": "kafka", "trigger_ms": trigger_ms, "sessions": trigger_ms + 1, "partitions": 2}
    return report(cell=cell, config=config, batches={"trigger_ms": batch_ms})


def test_the_cost_table_compares_within_each_swept_value() -> None:
    reports = [
        swept(trigger_ms, batch_ms * times, guarantee, variant) | {"seed": seed}
        for seed in (1, 2)
        for trigger_ms, times in ((5000, 2.0), (1000, 1.0))
        for batch_ms, guarantee, variant in (
            (100.0, "at-least-once", "acknowledged"), (100.0 + trigger_ms / 100, "exactly-once", "two-phase")
        )
    ]  # fmt: skip
    lines = cost_table.markdown(reports, [BY_NAME["batch_ms"]]).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0][3:] == ["trigger_ms", "rounds", "batch ms"]
    assert [row[3:] for row in rows[2:]] == [
        ["1000", "2", "100"], ["1000", "2", "1.10x (2 rounds)"],
        ["5000", "2", "200"], ["5000", "2", "1.50x (2 rounds)"],
    ]  # fmt: skip


def test_a_sweep_keeps_the_shape_or_refuses_a_short_load() -> None:
    ramp = replace(CELL, shape="ramp:0")
    assert {round(cell.load_s, 1) for cell in SWEEPS["rate"].of([ramp])} == {20.0}
    burst = replace(CELL, rate=333.0, sessions=30, shape="burst:4000:1:10")
    with pytest.raises(UserError, match="before its first burst") as refused:
        list(SWEEPS["rate"].of([burst]))
    assert refused.value.exit_code == ExitCode.USAGE
