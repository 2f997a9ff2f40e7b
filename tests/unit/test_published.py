"""The reports that are published show no cell of the fault matrix broken, beyond the limits that are known and told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from oncebench.reports import fault_matrix
from oncebench.reports.report import read_reports

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("series", ["faults-exactly-once", "faults-other-guarantees", "random-kills"])
def test_no_cell_of_the_published_matrix_is_broken_beyond_what_is_known(series: str) -> None:
    cells = fault_matrix.cells_of(read_reports(ROOT / "results" / "runs" / f"{series}.jsonl"))
    told: Counter[Any] = Counter(cell.word for cell in cells)
    assert told["kept"] > 0
    assert told.keys() <= {"kept", "limit", "vacuous"}
