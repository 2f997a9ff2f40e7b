"""What the published reports say: no cell is broken beyond the limits that are known, no row made again is made up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from oncebench.report.report import read_reports
from oncebench.report.tables import fault_matrix
from oncebench.report.tables.recovery_table import outages_of
from tests import ROOT


@pytest.mark.parametrize("series", ["faults-exactly-once", "faults-other-guarantees", "random-kills"])
def test_no_cell_of_the_published_matrix_is_broken_beyond_what_is_known(series: str) -> None:
    cells = fault_matrix.cells_of(read_reports(ROOT / "results" / "runs" / f"{series}.jsonl"))
    told: Counter[Any] = Counter(cell.outcome for cell in cells)
    assert told["kept"] > 0
    assert told.keys() <= {"kept", "limit", "vacuous"}


def test_no_rows_made_again_are_told_of_variants_that_tell_no_rows_and_some_are_of_all_others() -> None:
    made_again: dict[tuple[str, str, str], list[float]] = {}
    for outage in outages_of(read_reports(ROOT / "results")):
        told = made_again.setdefault(outage.row, [])
        told += [] if outage.recovery.replayed_rows is None else [outage.recovery.replayed_rows]
    assert {row for row, told in made_again.items() if not told} == {row for row in made_again if row[2] == "native"}
    assert all(any(told) for told in made_again.values() if len(told) > 20)  # of a few faults none may replay a row
