"""The fault matrix as tables: what each fault did to the promise of each configuration.

Promise: a pure function of reports. A cell of the matrix is one fault in one run: `kept`, `broken (CODES)`, `unknown`,
or `vacuous` (it was not hit, or found nothing to act on). A table has the worst of the repeats. `n/a`: the fault has no
point in this row, on any machine. `-`: it has a point, and there is no run.

Rows are charged to the fault of their batch, whether that fault tested anything or not. Other damage breaks the cell of
every fault of the run that acted, or of all faults if none acted: anomalies that belong to no single fault, and rows
lost or duplicated in a batch without a fault. So a broken run always has a broken cell.

A row of the matrix that never shows what its guarantee allows has tested nothing, and is `vacuous` as a whole. That is
at-most-once without a loss, and at-least-once without a duplicate. A guarantee is worth distinguishing only where the
weaker one fails.

What can go wrong: two faults in one batch are charged to the first of them (see `oncebench.audit.python.attribution`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from xml.etree import ElementTree

from oncebench.audit.verdict import Verdict
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE
from oncebench.delivery.failpoints import KILL, parse_fault
from oncebench.report.configuration import USUAL, Configuration, RunKind, configuration_of, place_of, run_kind_of
from oncebench.report.grid import grid
from oncebench.report.outcome import LIMIT, ORDER, broken_by, fault_outcome
from oncebench.report.schema import Fault, Report
from oncebench.report.tables.table import counts_text, duplicated_by, lost_by
from oncebench.scenario.matrix.cells import can_be_done
from oncebench.scenario.matrix.families import RANDOM, RANDOM_KILL, named, paired
from oncebench.scenario.matrix.families import columns as columns_of

# Two kinds of empty cells: the fault has no point in the row; the fault was not run.
NO_POINT, NOT_RUN = "n/a", "-"
# What a row with a weaker guarantee must show at least once, or it has tested nothing.
TIGHT: Mapping[str, Literal["lost", "duplicated"]] = {AT_MOST_ONCE: "lost", AT_LEAST_ONCE: "duplicated"}


@dataclass(frozen=True)
class MatrixCell:
    """One fault in one run. `outcome` is one of ORDER; `details` describes what was seen."""

    row: Configuration
    fault: str
    outcome: str
    details: str
    lost: int
    duplicated: int
    seed: int
    reproduce: str
    kind: RunKind = USUAL

    @property
    def text(self) -> str:
        """The cell as it stands in a table."""
        return (
            f"{self.outcome} ({self.details})"
            if self.outcome in (Verdict.BROKEN, LIMIT) and self.details
            else self.outcome
        )


def cells_of(reports: Iterable[Report]) -> list[MatrixCell]:
    """Every cell of the matrix in these reports, in the order of lists and tables."""
    return [cell for _, cell in cells_with_reports(reports)]


def cells_with_reports(reports: Iterable[Report]) -> list[tuple[int, MatrixCell]]:
    """Every cell of the matrix, each with the number of its report."""
    found = [
        (number, replace(cell, kind=run_kind_of(report)))
        for number, report in enumerate(reports)
        for cell in _of_run(report)
    ]
    tight = {
        (cell.row, cell.kind) for _, cell in found if cell.row[1] not in TIGHT or getattr(cell, TIGHT[cell.row[1]])
    }
    judged = [
        (number, cell if (cell.row, cell.kind) in tight or cell.outcome != Verdict.KEPT else _tested_nothing(cell))
        for number, cell in found
    ]
    return sorted(judged, key=lambda each: place_of(each[1].row))


def markdown(cells: Sequence[MatrixCell], family: str) -> str:
    """A Markdown table: a row per configuration, a column per fault of a family that was run.

    Args:
        cells: of runs of one kind.
        family: the family.
    """
    columns = [fault for fault in columns_of(family) if any(cell.fault == fault for cell in cells)]
    if not columns:
        return ""
    lines = [("sink", "guarantee", "variant", *columns)]
    for row in dict.fromkeys(cell.row for cell in cells):
        of_row = {fault: [cell for cell in cells if (cell.row, cell.fault) == (row, fault)] for fault in columns}
        if any(of_row.values()):
            workload = cells[0].kind.workload
            lines.append((*row, *(_worst(found) or _empty(fault, row, workload) for fault, found in of_row.items())))
    return grid(lines)


def junit(cells: Sequence[MatrixCell]) -> str:
    """The matrix as JUnit XML: a test case per fault and run, with its command."""
    failures, skipped = (
        sum(cell.outcome in some for cell in cells) for some in ((Verdict.BROKEN,), (Verdict.UNKNOWN, Verdict.VACUOUS))
    )
    suite = ElementTree.Element("testsuite", name="oncebench faults", tests=str(len(cells)), failures=str(failures),
                        skipped=str(skipped))  # fmt: skip
    for cell in cells:
        name = f"{cell.fault} seed {cell.seed}{cell.kind.text}"
        case = ElementTree.SubElement(suite, "testcase", classname=".".join(cell.row), name=name)
        if cell.outcome == Verdict.BROKEN:
            ElementTree.SubElement(case, "failure", message=cell.details)
        elif cell.outcome in (Verdict.UNKNOWN, Verdict.VACUOUS):
            ElementTree.SubElement(case, "skipped", message=f"{cell.outcome}: {cell.details}")
        ElementTree.SubElement(case, "system-out").text = cell.reproduce
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def counted(reports: Iterable[Report], cells: Sequence[MatrixCell]) -> str:
    """One line: how many faults of each kind acted, and the outcomes of the cells."""
    acted = [KILL if _is_random(fault) else parse_fault(fault["fault"]).action
             for report in reports for fault in report["faults"]
             if fault["hit"] and (fault["point"] or _is_random(fault))]  # fmt: skip
    kills = acted.count(KILL)
    outcomes = ", ".join(f"{sum(cell.outcome == outcome for cell in cells)} {outcome}" for outcome in ORDER)
    return f"{kills} kills and {len(acted) - kills} other faults in {len(cells)} cells: {outcomes}"


def _of_run(report: Report) -> Iterable[MatrixCell]:
    cell, row = report["cell"], configuration_of(report)
    command = shlex.split(report["reproduce"])
    chosen = [fault for fault in report["faults"] if not _is_random(fault)]
    missing = len(cell["faults"]) - len(chosen)
    if missing > 0:
        details = f"the report has nothing on {missing} faults that were requested"
        yield MatrixCell(row, "?", Verdict.VACUOUS, details, 0, 0, report["seed"], report["reproduce"])
    if cell["random_kills"]:
        yield _of_random_kills(report, row, cell["random_kills"])
    together = list(paired(chosen, lambda fault: "@" not in fault["fault"]))
    alone = len(together) == 1 and missing <= 0 and not cell["random_kills"]
    outside = report.get("uncharged", {}) if alone else {}
    for faults in together:
        outcome, details = min((fault_outcome(report, fault) for fault in faults), key=lambda one: ORDER.index(one[0]))
        texts = [str(fault["fault"]).split("@", maxsplit=1)[0] for fault in faults]
        lost = lost_by(faults) + (outside.get("lost") or 0)
        duplicated = duplicated_by(faults) + (outside.get("duplicated") or 0)
        yield MatrixCell(
            row, named(texts), outcome, details, lost, duplicated, report["seed"], _only_these(command, texts)
        )


def _is_random(fault: Fault) -> bool:
    return fault["fault"] == RANDOM_KILL


def _of_random_kills(report: Report, row: Configuration, requested: int) -> MatrixCell:
    """All random kills of a run as one cell, charged with every finding of the run."""
    kills = [fault for fault in report["faults"] if _is_random(fault)]
    outcome, details = report["verdict"], "; ".join(report["reasons"])
    if outcome == Verdict.BROKEN:
        details = " ".join(broken_by(report))
    elif len(kills) < requested:
        outcome, details = Verdict.VACUOUS, f"{len(kills)} of {requested} kills happened"
    return MatrixCell(row, RANDOM, outcome, details, report["rows"]["lost"], report["rows"]["duplicated"],
                      report["seed"], report["reproduce"])  # fmt: skip


def _tested_nothing(cell: MatrixCell) -> MatrixCell:
    return replace(cell, outcome=Verdict.VACUOUS, details=f"no fault of this row shows a row {TIGHT[cell.row[1]]}")


def _empty(fault: str, row: Configuration, workload: str) -> str:
    return NOT_RUN if can_be_done(fault, *row, workload) else NO_POINT


def _worst(cells: Sequence[MatrixCell]) -> str:
    """The worst of a cell's repeats; empty without repeats."""
    if not cells:
        return ""
    worst = min(cells, key=lambda cell: ORDER.index(cell.outcome))
    damage = counts_text(sum(cell.lost for cell in cells), sum(cell.duplicated for cell in cells))
    return f"{worst.text}, {damage}" if damage and worst.outcome == Verdict.KEPT else worst.text


def _only_these(command: Sequence[str], faults: Sequence[str]) -> str:
    """The command of a run with these faults and no others."""
    kept: list[str] = []
    skip = False
    for argument in command:
        if argument == "--fault":
            skip = True
        elif skip:
            skip = False
        else:
            kept.append(argument)
    return shlex.join([*kept, *(argument for fault in faults for argument in ("--fault", fault))])
