"""Counts where random kills hit, and bounds the rate of violations that is still possible.

Promise: a pure function of reports. There is one row per sink, guarantee and variant that was killed at random. Each
kill is counted once, under the last failpoint that its attempt had passed. An attempt that had passed none was
starting, or planning its first batch. After n kills without a violation, the rate of violations per kill is below 3/n
with a confidence of 95 % (the rule of three; Hanley and Lippman-Hand, JAMA 1983). This holds for kills at such times
only. A row with a run that was not kept has no such bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oncebench.audit.verdict import Verdict
from oncebench.delivery.failpoints import POINTS
from oncebench.report.configuration import Configuration, configuration_of, place_of
from oncebench.report.grid import grid
from oncebench.report.schema import Report
from oncebench.scenario.matrix.families import RANDOM_KILL

START = "start"
HEADINGS = ("sink", "guarantee", "variant", "kills", START, *POINTS, "lost", "duplicated", "runs", "rate at most")
_RULE_OF_THREE = 3.0


def markdown(reports: Iterable[Report]) -> str:
    """A Markdown table: kills by last failpoint, verdicts and bound, per configuration."""
    rows = table(reports)
    return grid([HEADINGS, *rows]) if rows else ""


def table(reports: Iterable[Report]) -> list[tuple[str, ...]]:
    """The rows of that table, below HEADINGS."""
    by_configuration: dict[Configuration, list[Report]] = {}
    for report in reports:
        if report["cell"]["random_kills"]:
            by_configuration.setdefault(configuration_of(report), []).append(report)
    lines: list[tuple[str, ...]] = []
    for configuration in sorted(by_configuration, key=place_of):
        runs = by_configuration[configuration]
        kills = kills_by_point(runs)
        verdicts = Counter(report["verdict"] for report in runs)
        lines.append((
            *configuration,
            str(kills.total()),
            *(str(kills[point]) for point in (START, *POINTS)),
            str(sum(report["rows"]["lost"] for report in runs)),
            str(sum(report["rows"]["duplicated"] for report in runs)),
            ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items()),
            bound(kills.total()) if set(verdicts) == {Verdict.KEPT} else "-",
        ))  # fmt: skip
    return lines


def kills_by_point(reports: Iterable[Report]) -> Counter[str]:
    """The number of random kills by the last failpoint that was passed; `start`: none was."""
    return Counter(
        fault["point"] or START
        for report in reports for fault in report["faults"] if fault["fault"] == RANDOM_KILL
    )  # fmt: skip


def bound(kills: int) -> str:
    """Returns the upper bound (95 %) of violations per kill, after so many kills without one."""
    return f"{_RULE_OF_THREE / kills:.1%}" if kills >= _RULE_OF_THREE else "-"
