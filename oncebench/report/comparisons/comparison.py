"""What a series of runs says, as one text: what `oncebench compare` ends with, and `oncebench table` says again.

Promise: a pure function of reports. The table of all cells comes first; then, where there are any, why a run that kept
its promise has no figures in it, what each of several faults did (where all are of one kind: a mixture is told by
`oncebench faults`), what each guarantee adds beside at-least-once and its ratios, recoveries, and the rates that
searches found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncebench.audit.verdict import KEPT
from oncebench.delivery.failpoints import KILL, parse_fault
from oncebench.report.comparisons import paired, sustained
from oncebench.report.measures.metrics import Report, why_no_speed
from oncebench.report.outcome import only_tried
from oncebench.report.tables import cost_table
from oncebench.report.tables import table as tables
from oncebench.report.titles import title
from oncebench.scenario.fault_matrix import RANDOM_KILL


def text(reports: Sequence[Report]) -> str:
    """Markdown, a part after the other with an empty line between; without runs that were interrupted, if there are
    others."""
    whole = [report for report in reports if not report.get("interrupted")]
    return "\n".join(_parts(whole or reports))


def _parts(reports: Sequence[Report]) -> Iterator[str]:
    if tables.rows(reports):
        yield tables.markdown(reports)
    if told := list(_without_speed(reports)):
        yield _lines(told)
    several = [report for report in reports if len(report["faults"]) > 1]
    if len({_action(fault["fault"]) for report in several for fault in report["faults"]}) == 1:
        yield f"rows that each fault lost or doubled:\n\n{tables.fault_markdown(reports)}"
    if told := paired.lines(reports):
        yield _lines(told)
        ratios = cost_table.markdown(reports)
        yield f"as ratios to at-least-once acknowledged of the same sink, {_intervals(reports)}:\n\n{ratios}"
    if told := paired.recoveries(reports):
        yield _lines(told)
    if limits := sustained.markdown(reports):
        yield f"what each guarantee keeps up with:\n\n{limits}"


def _without_speed(reports: Sequence[Report]) -> Iterator[str]:
    """Of each run that kept its promise and yet has no figures: why."""
    for report in reports:
        if report["verdict"] == KEPT and not only_tried(report) and (why := "; ".join(why_no_speed(report))):
            cell = report["cell"]
            way = f"{cell['sink']} {cell['guarantee']} {cell['variant']}, {title(report) or 'healthy'}"
            yield f"no figures of {way}, seed {report['seed']}: {why}"


def _action(fault: str) -> str:
    return KILL if fault == RANDOM_KILL else parse_fault(fault).action


def _lines(told: Sequence[str]) -> str:
    return "\n".join(told) + "\n"


def _intervals(reports: Sequence[Report]) -> str:
    most = max(len(rounds) for rounds in paired.settings(reports).values())
    few = f"of fewer than {paired.FEWEST_ROUNDS} rounds, which have no interval (try --repeat {paired.FEWEST_ROUNDS})"
    return "95 % intervals" if most >= paired.FEWEST_ROUNDS else few
