"""Where random kills landed, and what may be said after them: a pure function of reports.

Promise: one row for each sink, guarantee and variant that was killed at random; each kill is counted once, under the
failpoint that its life had passed last (a life that had passed none was starting, or planning its first batch). What
may be said is said carefully: after n kills without a violation, the rate of violations per kill is below 3/n with a
confidence of 95 % (the rule of three; Hanley and Lippman-Hand, JAMA 1983), for kills at times like these and at no
others. A row with a run that was not kept has no such bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oncebench.audit.verdict import KEPT
from oncebench.delivery.failpoints import POINTS
from oncebench.report.tables.table import Report, aligned
from oncebench.scenario.fault_matrix import RANDOM_KILL
from oncebench.scenario.order import order_of

START = "start"
HEADINGS = ("sink", "guarantee", "variant", "kills", START, *POINTS, "lost", "doubled", "runs", "rate at most")
_RULE_OF_THREE = 3.0


def markdown(reports: Iterable[Report]) -> str:
    """A Markdown table: rows sink x guarantee x variant; kills by the point passed last; verdicts; the bound."""
    rows = table(reports)
    return aligned([HEADINGS, *rows]) if rows else ""


def table(reports: Iterable[Report]) -> list[tuple[str, ...]]:
    """The rows of that table, below HEADINGS."""
    rows: dict[tuple[str, str, str], list[Report]] = {}
    for report in reports:
        cell = report["cell"]
        if cell["random_kills"]:
            rows.setdefault((cell["sink"], cell["guarantee"], cell["variant"]), []).append(report)
    lines: list[tuple[str, ...]] = []
    for row in sorted(rows, key=lambda row: (row[0], order_of(*row[1:]))):
        landed = landings(rows[row])
        kills, kept = sum(landed.values()), all(report["verdict"] == KEPT for report in rows[row])
        lost, doubled = (sum(report["rows"][name] for report in rows[row]) for name in ("lost", "duplicated"))
        lines.append((
            *row, str(kills), *(str(landed[point] or "-") for point in (START, *POINTS)), str(lost), str(doubled),
            ", ".join(f"{n} {word}" for word, n in Counter(report["verdict"] for report in rows[row]).items()),
            bound(kills) if kept else "-",
        ))  # fmt: skip
    return lines


def landings(reports: Iterable[Report]) -> Counter[str]:
    """How many random kills found each failpoint passed last; `start`: none of them."""
    return Counter(
        fault["point"] or START
        for report in reports for fault in report["faults"] if fault["fault"] == RANDOM_KILL
    )  # fmt: skip


def bound(kills: int) -> str:
    """The rate of violations per kill, in per cent, that so many kills without one leave possible (95 %)."""
    return f"{_RULE_OF_THREE / kills:.1%}" if kills >= _RULE_OF_THREE else "-"
