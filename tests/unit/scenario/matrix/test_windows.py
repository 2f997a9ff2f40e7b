"""The fault matrix of the workload `windows`.

It has loads without a limit of the batches, and tables of its own.
"""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from oncebench.delivery.contract import AT_MOST_ONCE
from oncebench.delivery.failpoints import POINTS, parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.report.tables import fault_matrix, fault_text
from oncebench.scenario.cell import Cell
from oncebench.scenario.matrix import cells as matrix
from oncebench.scenario.matrix.families import EVERYDAY
from oncebench.scenario.workloads import WORKLOADS
from pipeline.config import WINDOWS
from tests.unit.scenario.matrix.test_cells import row
from tests.unit.scenario.test_fault_matrix import fault, report


def test_windows_have_unlimited_batches_and_keep_their_checkpoint() -> None:
    base = Cell("", "", "", workload=WINDOWS)
    made = matrix.cells([row("kafka", "two-phase")], EVERYDAY, base, matrix.seeds_for(1))
    assert all(cell.max_events_per_batch is None and cell.trigger_ms == 1000 for cell in made)
    assert all(WORKLOADS[WINDOWS].why_not(cell) is None for cell in made)
    (kills,) = (cell for cell in made if len(cell.faults) == len(POINTS))
    assert kills.sessions / float(kills.rate) * 100 >= 30 * len(POINTS), "each kill has time for its restart"
    (slow,) = (cell for cell in made if cell.faults == ("after-prepare:outage:25", "after-decision:outage:25@after=2"))
    assert slow.sessions / float(slow.rate) * 100 >= 2 * (25 + 30), "an outage does not shorten the restart"
    gone = [text for cell in made for text in cell.faults if FAULTS[parse_fault(text).action].replaces_checkpoint]
    assert gone == []
    no_point, _ = matrix.left_out([row("kafka", "two-phase")], EVERYDAY, replace(matrix.DEFAULT, workload=WINDOWS))
    assert "after-commit:roll-back" in no_point["with windows, it takes the watermark away with the checkpoint"]


def test_the_tables_keep_workloads_apart() -> None:
    one, other = report(fault("mid-write:kill")), report(fault("mid-write:kill"), codes=("DUP",), verdict="broken")
    reports = [one | {"config": {}}, other | {"config": {"workload": WINDOWS}}]
    text = fault_text.markdown(reports, fault_matrix.cells_of(reports))
    sessions, windows = text.split("kills, windows:")
    assert ("kept" in sessions, "broken" in sessions) == (True, False)
    assert ("kept" in windows, "broken" in windows) == (False, True)
    cases = ElementTree.fromstring(fault_matrix.junit(fault_matrix.cells_of(reports)))
    assert sorted(case.attrib["name"] for case in cases) == [
        "mid-write:kill seed 4",
        "mid-write:kill seed 4, windows",
    ]


def test_a_loss_of_another_workload_does_not_show_that_faults_were_tested() -> None:
    quiet = report(fault("mid-write:kill"), guarantee=AT_MOST_ONCE)
    telling = report(fault("mid-write:kill", lost=5), guarantee=AT_MOST_ONCE) | {"config": {"workload": WINDOWS}}
    found = {cell.kind.workload: cell.outcome for cell in fault_matrix.cells_of([quiet, telling])}
    assert found == {"sessions": "vacuous", WINDOWS: "kept"}
