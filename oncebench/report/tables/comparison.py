"""The result of a series of runs as one text, for `oncebench compare` and `oncebench table`.

Promise: a pure function of reports. The table of all cells comes first. The other parts follow if they have content:
runs without a verdict or figures, the effects of each fault, the cost of each guarantee compared with at-least-once,
recoveries, and the sustained rates. Single rounds have figures, and no difference or ratio. The part on faults needs
runs with several faults of one kind; `oncebench faults` covers mixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from oncebench.audit.verdict import Verdict
from oncebench.delivery.failpoints import KILL, parse_fault
from oncebench.report.comparisons import paired, sustained
from oncebench.report.configuration import configuration_of
from oncebench.report.measures.metrics import why_no_speed
from oncebench.report.outcome import only_tried
from oncebench.report.schema import Report
from oncebench.report.tables import cost_table
from oncebench.report.tables import table as tables
from oncebench.report.titles import title
from oncebench.scenario.matrix.families import RANDOM_KILL

# Verdicts that prove nothing about a guarantee, with what to do.
_ADVICE: Mapping[str, str] = {
    Verdict.UNKNOWN: "a run that cannot decide. Remove the reason, then run it again",
    Verdict.VACUOUS: "a fault that tested nothing. Run it again; if it was not hit, with a longer --duration",
}


def text(reports: Sequence[Report]) -> str:
    """Returns the result of a series of runs as Markdown.

    Empty lines separate the parts of the text. Interrupted runs are left out if there are complete runs.
    """
    complete = [report for report in reports if not report.get("interrupted")]
    return "\n".join(_parts(complete or reports))


def _parts(reports: Sequence[Report]) -> Iterator[str]:
    if tables.rows(reports):
        yield tables.markdown(reports)
    if lines := [*_without_verdict(reports), *_without_speed(reports)]:
        yield _joined(lines)
    several = [report for report in reports if len(report["faults"]) > 1]
    if len({_action(fault["fault"]) for report in several for fault in report["faults"]}) == 1:
        yield f"rows that each fault lost or duplicated:\n\n{tables.fault_markdown(reports)}"
    yield from _comparisons(reports)
    if limits := sustained.markdown(reports):
        yield f"what each guarantee keeps up with:\n\n{limits}"


def _comparisons(reports: Sequence[Report]) -> Iterator[str]:
    """Yields the costs and recoveries compared with at-least-once.

    If no comparison has enough rounds, a warning comes first.
    """
    costs, recoveries = paired.most_rounds(reports)
    if 0 < max(costs, recoveries) < paired.FEWEST_ROUNDS:
        yield f"{_too_few(max(costs, recoveries))} For a result, give --repeat {paired.FEWEST_ROUNDS}.\n"
    if lines := paired.cost_lines(reports):
        yield _joined(lines)
    if costs == 1:
        yield f"figures of single rounds:\n\n{cost_table.markdown(reports)}"
    elif costs:
        intervals = "95 % intervals" if costs >= paired.FEWEST_ROUNDS else "without intervals"
        ratios = cost_table.markdown(reports)
        yield f"as ratios to at-least-once acknowledged of the same sink, {intervals}:\n\n{ratios}"
    if lines := paired.recovery_lines(reports):
        yield _joined(lines)


def _too_few(rounds: int) -> str:
    if rounds == 1:
        return (
            f"No comparison has more than one round, and {paired.SINGLE_ROUNDS}. So differences and ratios are left "
            "out."
        )
    return (
        f"No comparison has more than {rounds} rounds. Fewer than {paired.FEWEST_ROUNDS} have no interval and show no "
        "difference."
    )


def _without_verdict(reports: Sequence[Report]) -> Iterator[str]:
    """Returns a line per run that proves nothing, with the reason and then what to do."""
    found = [report for report in reports if report["verdict"] in _ADVICE and not only_tried(report)]
    for report in found:
        yield f"{report['verdict']}: {_run(report)}: {'; '.join(report['reasons'])}"
    for verdict in sorted({report["verdict"] for report in found}):
        yield f"{verdict}: {_ADVICE[verdict]}."


def _without_speed(reports: Sequence[Report]) -> Iterator[str]:
    """Returns a line per run that kept its promise but has no figures, with the reason."""
    for report in reports:
        if report["verdict"] == Verdict.KEPT and not only_tried(report) and (why := "; ".join(why_no_speed(report))):
            yield f"no figures of {_run(report)}: {why}"


def _run(report: Report) -> str:
    return f"{' '.join(configuration_of(report))}, {title(report) or 'healthy'}, seed {report['seed']}"


def _action(fault: str) -> str:
    return KILL if fault == RANDOM_KILL else parse_fault(fault).action


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
