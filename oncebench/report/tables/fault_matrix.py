"""The fault matrix as tables: for each sink, guarantee and variant, what each fault did to the promise.

Promise: a pure function of reports. A cell of the matrix is one fault in one run: `kept`, `broken (CODES)`, `unknown`,
or `vacuous` (it was not hit, or found nothing to act on). The worst of its repeats is shown; `n/a` where the fault has
no point in the row, on whatever machine, and `-` where it has one and no run is there. Rows are charged to the fault of
their batch, whether it tested anything or not; an anomaly that can't be charged to one fault, and what a batch lost or
doubled in which none acted, breaks the cell of every fault of its run that acted, or of all where none did: a broken
run has a broken cell. A row of the matrix that never shows what its guarantee allows (at-most-once no loss,
at-least-once no duplicate) has tested nothing: `vacuous`, the whole of it (a guarantee is only worth telling apart
where the weaker one fails).

What can go wrong: two faults in one batch are charged to the first of them (see `oncebench.audit.python.attribution`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from oncebench.audit.verdict import BROKEN, KEPT, UNKNOWN, VACUOUS
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE
from oncebench.delivery.failpoints import KILL, parse_fault
from oncebench.report.outcome import CHARGED, LIMIT, ORDER, judged
from oncebench.report.tables.table import Report, aligned
from oncebench.scenario.fault_matrix import RANDOM, RANDOM_KILL, can_be_done, named, paired
from oncebench.scenario.fault_matrix import columns as columns_of
from oncebench.scenario.order import order_of

# A cell without a run.
NO_POINT, NOT_RUN = "n/a", "-"
# What a weaker guarantee must show at least once, or its row has tested nothing.
TIGHT = {AT_MOST_ONCE: "lost", AT_LEAST_ONCE: "duplicated"}


@dataclass(frozen=True)
class Cell:
    """One fault in one run. `word` is one of ORDER; `told` says what was seen."""

    row: tuple[str, str, str]
    fault: str
    word: str
    told: str
    lost: int
    duplicated: int
    seed: int
    reproduce: str

    @property
    def shown(self) -> str:
        """As it stands in a table."""
        return f"{self.word} ({self.told})" if self.word in (BROKEN, LIMIT) and self.told else self.word


def cells_of(reports: Iterable[Report]) -> list[Cell]:
    """Every cell of the matrix that these reports have, in the order of lists and tables."""
    return [cell for _, cell in numbered(reports)]


def numbered(reports: Iterable[Report]) -> list[tuple[int, Cell]]:
    """The same, each cell with the number of its report."""
    found = [(number, cell) for number, report in enumerate(reports) for cell in _of_run(report)]
    shows = {
        cell.row for _, cell in found
        if cell.row[1] not in TIGHT or getattr(cell, TIGHT[cell.row[1]])
    }  # fmt: skip
    tight = [
        (number, cell if cell.row in shows or cell.word != KEPT else _loose(cell)) for number, cell in found
    ]  # fmt: skip
    return sorted(tight, key=lambda each: (each[1].row[0], order_of(*each[1].row[1:])))


def markdown(cells: Sequence[Cell], family: str) -> str:
    """A Markdown table: rows sink x guarantee x variant, columns the faults of a family that were run."""
    columns = [fault for fault in columns_of(family) if any(cell.fault == fault for cell in cells)]
    if not columns:
        return ""
    lines = [("sink", "guarantee", "variant", *columns)]
    for row in dict.fromkeys(cell.row for cell in cells):
        of_row = {fault: [cell for cell in cells if (cell.row, cell.fault) == (row, fault)] for fault in columns}
        if any(of_row.values()):
            lines.append((*row, *(_worst(found) or _empty(fault, row) for fault, found in of_row.items())))
    return aligned(lines)


def junit(cells: Sequence[Cell]) -> str:
    """The same as JUnit XML: a test case for each fault in each run, with the command that runs it again."""
    failures, skipped = (sum(cell.word in words for cell in cells) for words in ((BROKEN,), (UNKNOWN, VACUOUS)))
    suite = ElementTree.Element("testsuite", name="oncebench faults", tests=str(len(cells)), failures=str(failures),
                        skipped=str(skipped))  # fmt: skip
    for cell in cells:
        name = f"{cell.fault} seed {cell.seed}"
        case = ElementTree.SubElement(suite, "testcase", classname=".".join(cell.row), name=name)
        if cell.word == BROKEN:
            ElementTree.SubElement(case, "failure", message=cell.told)
        elif cell.word in (UNKNOWN, VACUOUS):
            ElementTree.SubElement(case, "skipped", message=f"{cell.word}: {cell.told}")
        ElementTree.SubElement(case, "system-out").text = cell.reproduce
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def counted(reports: Iterable[Report], cells: Sequence[Cell]) -> str:
    """One line: how many faults of which kind acted, and what became of the cells."""
    acted = [KILL if _by_chance(fault) else parse_fault(fault["fault"]).action
             for report in reports for fault in report["faults"]
             if fault["hit"] and (fault["point"] or _by_chance(fault))]  # fmt: skip
    kills = acted.count(KILL)
    words = ", ".join(f"{sum(cell.word == word for cell in cells)} {word}" for word in ORDER)
    return f"{kills} kills and {len(acted) - kills} other faults in {len(cells)} cells: {words}"


def _of_run(report: Report) -> Iterable[Cell]:
    cell = report["cell"]
    row = cell["sink"], cell["guarantee"], cell["variant"]
    words = shlex.split(report["reproduce"])
    missing = len(cell["faults"]) - sum(not _by_chance(fault) for fault in report["faults"])
    if missing > 0:
        yield Cell(row, "?", VACUOUS, f"the report tells nothing of {missing} faults that were asked for", 0, 0,
                   report["seed"], report["reproduce"])  # fmt: skip
    if cell["random_kills"]:
        yield _of_random_kills(report, row, cell["random_kills"])
    for faults in paired(
        [fault for fault in report["faults"] if not _by_chance(fault)], lambda fault: "@" not in fault["fault"]
    ):
        word, told = min((judged(report, fault) for fault in faults), key=lambda judged: ORDER.index(judged[0]))
        texts = [str(fault["fault"]).split("@", maxsplit=1)[0] for fault in faults]
        lost, doubled = (sum(fault[name] for fault in faults) for name in CHARGED.values())
        yield Cell(row, named(texts), word, told, lost, doubled, report["seed"], _alone(words, texts))


def _by_chance(fault: Mapping[str, Any]) -> bool:
    return bool(fault["fault"] == RANDOM_KILL)


def _of_random_kills(report: Report, row: tuple[str, str, str], asked: int) -> Cell:
    """All random kills of a run as one cell, which answers for whatever was found in the run."""
    kills = [fault for fault in report["faults"] if _by_chance(fault)]
    word, told = report["verdict"], "; ".join(report["reasons"])
    if word == BROKEN:
        told = " ".join(sorted(report["broken_by"]))
    elif len(kills) < asked:
        word, told = VACUOUS, f"{len(kills)} of {asked} kills happened"
    return Cell(row, RANDOM, word, told, report["rows"]["lost"], report["rows"]["duplicated"], report["seed"],
                report["reproduce"])  # fmt: skip


def _loose(cell: Cell) -> Cell:
    what = TIGHT[cell.row[1]]
    return Cell(cell.row, cell.fault, VACUOUS, f"no fault of this row shows a row {what}", cell.lost, cell.duplicated,
                cell.seed, cell.reproduce)  # fmt: skip


def _empty(fault: str, row: tuple[str, str, str]) -> str:
    return NOT_RUN if can_be_done(fault, *row) else NO_POINT


def _worst(cells: Sequence[Cell]) -> str:
    """Empty where there is none."""
    if not cells:
        return ""
    worst = min(cells, key=lambda cell: ORDER.index(cell.word))
    lost, doubled = sum(cell.lost for cell in cells), sum(cell.duplicated for cell in cells)
    seen = ", ".join(f"{number} {word}" for number, word in ((lost, "lost"), (doubled, "doubled")) if number)
    return f"{worst.shown}{f', {seen}' if seen and worst.word == KEPT else ''}"


def _alone(words: Sequence[str], faults: Sequence[str]) -> str:
    """The command of a run with these faults alone."""
    kept: list[str] = []
    skip = False
    for word in words:
        if word == "--fault":
            skip = True
        elif skip:
            skip = False
        else:
            kept.append(word)
    return shlex.join([*kept, *(word for fault in faults for word in ("--fault", fault))])
