"""The costs that README and docs/what_it_costs.md name are those of the stored results."""

from __future__ import annotations

from functools import cache

import pytest

from oncebench import bench
from oncebench.report.comparisons.paired import BASELINE, settings
from oncebench.report.comparisons.sweep_selection import full_of
from oncebench.report.measures.metrics import BY_NAME
from oncebench.report.report import read_reports
from oncebench.report.schema import Report
from oncebench.report.tables.batch_series import BatchSeries, series_in
from oncebench.report.tables.batches import agreements, by_arm, extra_ms, ratio_of
from oncebench.site.answer.prices import whole
from oncebench.site.costs import absolute
from tests import ROOT
from tools import cost_tables

README, COSTS = ROOT / "README.md", ROOT / "docs" / "what_it_costs.md"
RESULTS = ROOT / "results"
# The exactly-once variant of each sink that the texts name.
NAMED = {
    "kafka": "two-phase", "postgres": "two-phase", "files-jsonl": "two-phase", "files-parquet": "two-phase",
    "delta": "idempotent",
}  # fmt: skip


@cache
def reports() -> list[Report]:
    return read_reports(RESULTS)


@cache
def newest() -> BatchSeries:
    return whole(series_in(RESULTS))[-1]


def text_of(place: object) -> str:
    """A page without line breaks."""
    return " ".join((README if place == README else COSTS).read_text().split())


@pytest.mark.parametrize("table", ["flat_out", "latencies", "killed"])
def test_the_page_of_costs_has_the_table_of_the_stored_results(table: str) -> None:
    made = cost_tables.flat_out() if table == "flat_out" else getattr(cost_tables, table)(reports())
    assert made in COSTS.read_text()


def test_the_page_of_costs_says_whether_the_series_agree() -> None:
    found = agreements(series_in(RESULTS))
    assert found in COSTS.read_text()
    assert ("the intervals of each row overlap" in text_of(COSTS)) == ("no**" not in found)


@pytest.mark.parametrize("sink", NAMED)
def test_readme_and_the_page_of_costs_name_the_stored_prices(sink: str) -> None:
    base, arm = f"{sink}.at-least-once.acknowledged", f"{sink}.exactly-once.{NAMED[sink]}"
    times = by_arm(newest().lines)
    found, extra = ratio_of(times, arm, base), extra_ms(times, arm, base)
    percent = f"{(found.median - 1) * 100:+.1f} % ({(found.low - 1) * 100:+.1f} to {(found.high - 1) * 100:+.1f})"
    assert percent in text_of(README)
    assert f"{percent}, {extra.median:+.0f} ms a batch" in text_of(COSTS)


@pytest.mark.parametrize("sink", NAMED)
def test_the_page_of_costs_names_the_stored_medians(sink: str) -> None:
    found = settings(reports())
    rounds = found[full_of(found)[sink]]
    variants = (BASELINE, ("exactly-once", NAMED[sink]))
    medians = [each.median for variant in variants if (each := absolute(rounds, BY_NAME["p50_ms"], variant))]
    assert " and ".join(f"{each:,.0f}" for each in medians) + " ms" in text_of(COSTS)


def test_the_page_of_measuring_has_the_load_of_the_benchmarks() -> None:
    page = " ".join((ROOT / "docs" / "measuring.md").read_text().split())
    assert f"three times healthy at {bench.RATE:,.0f} events/s" in page
    assert f"the {bench.SESSIONS} sessions of a run" in page
