"""Cells of the fault matrix without a run: `n/a` if pointless there, else `-`."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.report.tables import fault_matrix
from oncebench.scenario.matrix import cells as matrix
from oncebench.scenario.matrix.families import FAMILIES, RANDOM, columns, named, paired
from oncebench.sinks.registry import SINKS
from tests.unit.scenario.test_fault_matrix import fault, report


def shown(*reports: Any, family: str) -> list[list[str]]:
    """The cells of a family's table, below its headings."""
    lines = fault_matrix.markdown(fault_matrix.cells_of(reports), family).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")][3:] for line in lines]


def of_row(sink: str, variant: str, *texts: str) -> Any:
    made = report(*(fault(text) for text in texts), variant=variant)
    made["cell"]["sink"] = sink
    return made


def test_a_pointless_fault_is_n_a_and_one_that_did_not_run_is_a_dash() -> None:
    kafka = of_row("kafka", "two-phase", "after-prepare:hijack", "mid-write:fill-output:20@after=2")
    files = of_row("files-jsonl", "two-phase", "after-prepare:kill-broker", "mid-write:fill-output:20@after=2")
    assert shown(kafka, files, family="broker") == [["n/a", "kept"], ["kept", "-"]]
    assert shown(kafka, files, family="disk") == [
        ["kept"],
        ["kept"],
    ]  # a fault that ran has its verdict, pointless or not


def test_a_fault_that_this_machine_cannot_do_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncebench.faults.catalogue.cannot_mount", lambda: "a small disk is mounted by root only")
    disk = ("after-prepare:fill-checkpoint:20", "mid-write:fill-output:20@after=2")
    pravega = of_row("pravega", "two-phase", "mid-write:fill-broker:20")
    files = of_row("files-jsonl", "two-phase", *disk)
    assert shown(files, pravega, family="disk") == [["kept", "kept", "-"], ["-", "n/a", "kept"]]


def test_pairs_and_random_kills_are_possible_in_every_row() -> None:
    pairs = ("mid-write:kill", "after-prepare:kill", "after-prepare:kill@after=2", "before-decision:kill")
    whole, half = of_row("kafka", "native", *pairs), of_row("delta", "native", *pairs[:2])
    assert shown(whole, half, family="pairs") == [["kept", "-"], ["kept", "kept"]]
    assert all(matrix.can_be_done(RANDOM, row.sink, row.support.guarantee, row.support.variant)
               for row in matrix.rows(tuple(SINKS)))  # fmt: skip


def test_a_timeout_outage_needs_transactions_that_can_expire() -> None:
    outages = ("after-prepare:outage:25", "after-decision:outage:25@after=2")
    kafka, half = of_row("kafka", "two-phase", *outages), of_row("files-jsonl", "two-phase", outages[0])
    assert shown(kafka, half, family="timeout") == [["kept", "n/a"], ["kept", "kept"]]


def test_no_fault_is_pointless_in_an_undeclared_row() -> None:
    assert matrix.can_be_done("after-prepare:hijack", "kafka", "exactly-once", "of-another-time")


def test_possible_faults_are_the_faults_of_the_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncebench.faults.catalogue.cannot_mount", lambda: None)
    for chosen in matrix.rows(tuple(SINKS)):
        support = chosen.support
        for family in (name for name, each in FAMILIES.items() if each.faults):
            in_runs = paired(matrix.chain(chosen, family), lambda text: "@" not in text)
            can = [
                column for column in columns(family)
                if matrix.can_be_done(column, chosen.sink, support.guarantee, support.variant)
            ]  # fmt: skip
            assert can == [named(pair) for pair in in_runs], (chosen, family)
