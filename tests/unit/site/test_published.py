"""The published reports: known limits only, and costs that can be compared."""

from __future__ import annotations

import re
from collections import Counter
from statistics import median
from typing import Any

import pytest

from oncebench.report.comparisons.paired import BASELINE, settings
from oncebench.report.comparisons.sweep_selection import RATE, full_of
from oncebench.report.configuration import configurations_of
from oncebench.report.outcome import is_healthy
from oncebench.report.report import read_reports
from oncebench.report.tables import fault_matrix
from oncebench.report.tables.recovery_table import outages_of
from oncebench.site import about
from oncebench.site.faults.matrix import matrix_of
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


def test_readme_and_the_page_of_costs_count_the_cells_as_the_page_does() -> None:
    reports = read_reports(ROOT / "results")
    made = about.as_json(reports, matrix_of(reports), configurations_of(reports))
    found = re.match(r"Exactly-once was kept in (\d+) of (\d+) cells", made["promises"][0])
    older = re.match(r"At least (\d+) of (\d+) cells of exactly-once", made["protocols"])
    assert found is not None and older is not None
    (kept, cells), present = found.groups(), older[1]
    assert older[2] == cells
    for page in ("README.md", "docs/what_it_costs.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert f"in {kept} of {cells} " in text
        assert f"At least {present} of these cells ran with the current protocols" in text


def test_the_page_has_the_published_shares_of_observation() -> None:
    found: dict[str, list[float]] = {}
    for report in read_reports(ROOT / "results"):
        share = report.get("watching_share")
        if is_healthy(report) and share is not None and report["config"]["rate"] == RATE:
            found.setdefault(report["cell"]["sink"], []).append(100 * share)
    page = " ".join((ROOT / "docs" / "reading_the_tables.md").read_text().split())
    section = page[page.index("Medians of `watching_share`") :].partition("python -m tools.observer_cost")[0]
    assert found.keys() == NAMES.keys()
    for sink, name in NAMES.items():
        assert f"{name} {median(found[sink]):.1f} %" in section


NAMES = {
    "kafka": "Kafka", "files-jsonl": "JSON lines", "delta": "Delta", "files-parquet": "Parquet",
    "postgres": "PostgreSQL",
}  # fmt: skip
