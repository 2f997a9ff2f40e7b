"""The rows of the page: every sink, guarantee and variant that was run, in the order of lists and tables.

Promise: what is broken on purpose comes last and says what it is there to show.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncebench.report.tables.table import Report
from oncebench.scenario.order import order_of
from oncebench.scenario.supports import expected_codes

Way = tuple[str, str, str]


def way_of(report: Report) -> Way:
    """The row of a report."""
    cell = report["cell"]
    return cell["sink"], cell["guarantee"], cell["variant"]


def ways_of(reports: Iterable[Report]) -> dict[Way, str]:
    """Every row in its order, with the code that it is there to show; empty: it is meant to keep its promise."""
    found = {way_of(report): " ".join(sorted(expected_codes(report))) for report in reports}
    return {way: found[way] for way in sorted(found, key=lambda way: (bool(found[way]), way[0], order_of(*way[1:])))}
