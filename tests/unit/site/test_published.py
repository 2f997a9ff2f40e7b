"""The published reports: known limits only, and costs that can be compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from oncebench.report.comparisons.paired import BASELINE, settings
from oncebench.report.comparisons.sweep_selection import full_of
from oncebench.report.report import read_reports
from oncebench.report.tables import fault_matrix
from oncebench.report.tables.recovery_table import outages_of
from tests import ROOT


@pytest.mark.parametrize("series", ["faults-exactly-once", "faults-other-guarantees", "random-kills"])
def test_published_cells_are_broken_only_by_known_limits(series: str) -> None:
    cells = fault_matrix.cells_of(read_reports(ROOT / "results" / "runs" / f"{series}.jsonl"))
    outcomes: Counter[Any] = Counter(cell.outcome for cell in cells)
    assert outcomes["kept"] > 0
    assert outcomes.keys() <= {"kept", "limit", "vacuous"}


def test_published_replayed_rows_are_missing_for_native_variants_only() -> None:
    replayed: dict[tuple[str, str, str], list[float]] = {}
    for outage in outages_of(read_reports(ROOT / "results")):
        rows = replayed.setdefault(outage.row, [])
        rows += [] if outage.recovery.replayed_rows is None else [outage.recovery.replayed_rows]
    assert {row for row, rows in replayed.items() if not rows} == {row for row in replayed if row[2] == "native"}
    assert all(any(rows) for rows in replayed.values() if len(rows) > 20)  # a few faults alone may replay no row


def test_published_guarantees_of_a_sink_share_one_setting() -> None:
    found = settings(read_reports(ROOT / "results"))
    comparable = {
        sink for sink, setting in full_of(found).items()
        if any(BASELINE in here and len(here) > 1 for here in found[setting].values())
    }  # fmt: skip
    assert comparable >= {"delta", "files-jsonl", "files-parquet", "kafka", "postgres"}
