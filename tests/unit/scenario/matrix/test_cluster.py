"""The fault matrix on the run's own Spark cluster."""

from __future__ import annotations

from dataclasses import replace

from oncebench.delivery.failpoints import parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.report.tables import fault_matrix, fault_text
from oncebench.scenario.matrix import cells as matrix
from oncebench.scenario.matrix.families import EVERYDAY
from tests.unit.scenario.matrix.test_cells import row
from tests.unit.scenario.test_fault_matrix import fault, report

CLUSTER = replace(matrix.DEFAULT, workers=2)
KAFKA = row("kafka", "two-phase")


def test_on_a_cluster_only_a_second_pipeline_is_left_out() -> None:
    assert matrix.chain(KAFKA, "executor", CLUSTER) == matrix.chain(KAFKA, "executor")
    assert matrix.chain(KAFKA, "kills", CLUSTER) == matrix.chain(KAFKA, "kills")
    _, here = matrix.left_out([KAFKA], EVERYDAY, CLUSTER)
    assert [set(here[why]) for why in here if "cluster" in why] == [{"after-prepare:zombie", "mid-commit:zombie"}]
    (lives,) = matrix.cells([KAFKA], ["lives"], CLUSTER, matrix.seeds_for(1))
    assert lives.workers == 2
    assert not any(FAULTS[parse_fault(text).action].starts_successor for text in lives.faults)


def test_runs_on_a_cluster_have_tables_of_their_own() -> None:
    local, cluster = (report(fault("mid-write:kill")), report(fault("mid-write:kill")) | {"config": {"workers": 2}})
    cells = fault_matrix.cells_of([local, cluster])
    assert [cell.kind.text for cell in cells] == ["", ", cluster of 2"]
    text = fault_text.markdown([local, cluster], cells)
    assert "kills:" in text
    assert "kills, cluster of 2:" in text
