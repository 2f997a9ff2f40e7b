"""The correctness matrix as data: each configuration's outcome under each fault.

Promise: `none` is a column too: runs without a fault. A cell is the worst of its runs. It adds up the rows that all of
them lost and duplicated, and names its runs. Its command is that of the worst run, with the cell's own fault alone.
Interrupted runs are left out, because they were not tested to the end. Probes of a rate are left out too, unless they
broke the promise. Runs of another kind (`RunKind`) are left out as well. A fault that is in no family of
`oncebench.scenario.matrix.families` is in the family `other`. The data also lists which faults cannot be done to a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncebench.audit.verdict import Verdict
from oncebench.delivery.failpoints import parse_fault
from oncebench.report.configuration import USUAL, Configuration, configuration_of, run_kind_of
from oncebench.report.outcome import LIMIT, ORDER, broken_by, is_healthy, only_tried
from oncebench.report.schema import Report
from oncebench.report.tables.fault_matrix import MatrixCell, cells_with_reports
from oncebench.scenario.matrix.cells import can_be_done
from oncebench.scenario.matrix.families import FAMILIES
from oncebench.scenario.matrix.families import columns as columns_of
from oncebench.scenario.matrix.limits import LIMITS
from oncebench.site.pack import Texts, columns

HEALTHY, OTHER, NO_FAULT = "healthy", "other", "none"
_HOME = {fault: family for family in FAMILIES for fault in columns_of(family)}


@dataclass(frozen=True)
class Entry:
    """A cell of the fault matrix for one fault in one run, and the number of that run."""

    run: int
    cell: MatrixCell

    @property
    def codes(self) -> tuple[str, ...]:
        """The anomalies that are charged to this fault."""
        return tuple(self.cell.details.split()) if self.cell.outcome in (Verdict.BROKEN, LIMIT) else ()


@dataclass(frozen=True)
class Place:
    """A cell of the matrix on the page."""

    configuration: Configuration
    family: str
    fault: str


Matrix = Mapping[Place, Sequence[Entry]]


def matrix_of(reports: Sequence[Report]) -> Matrix:
    """Every cell with its entries, in the order of rows and columns."""
    used = [
        number for number, report in enumerate(reports)
        if not (report.get("interrupted") or only_tried(report)) and run_kind_of(report) == USUAL
    ]  # fmt: skip
    faulted = [Entry(used[at], cell) for at, cell in cells_with_reports([reports[number] for number in used])]
    found: dict[Place, list[Entry]] = {}
    for entry in [*_healthy(reports, used), *faulted]:
        family = HEALTHY if entry.cell.fault == NO_FAULT else _HOME.get(entry.cell.fault, OTHER)
        found.setdefault(Place(entry.cell.row, family, entry.cell.fault), []).append(entry)
    return found


def families_of(matrix: Matrix) -> dict[str, list[str]]:
    """The faults that some row has, by family, in the order of a batch."""
    every = {HEALTHY: [NO_FAULT], **{family: list(columns_of(family)) for family in FAMILIES}}
    every[OTHER] = sorted({place.fault for place in matrix if place.family == OTHER})
    present = {(place.family, place.fault) for place in matrix}
    found = {family: [fault for fault in faults if (family, fault) in present] for family, faults in every.items()}
    return {family: faults for family, faults in found.items() if faults}


def worst(entries: Sequence[Entry]) -> Entry:
    """The first entry with the worst outcome: the one that its cell displays."""
    return min(entries, key=lambda entry: ORDER.index(entry.cell.outcome))


def codes_of(entries: Sequence[Entry]) -> str:
    """The codes of those entries that have the worst outcome."""
    outcome = worst(entries).cell.outcome
    return " ".join(sorted({code for entry in entries if entry.cell.outcome == outcome for code in entry.codes}))


def outcomes_of(matrix: Matrix) -> dict[Configuration, str]:
    """The worst outcome of each row over all of its cells."""
    rows: dict[Configuration, list[Entry]] = {}
    for place, entries in matrix.items():
        rows.setdefault(place.configuration, []).extend(entries)
    return {row: worst(entries).cell.outcome for row, entries in rows.items()}


def as_json(matrix: Matrix, configurations: Sequence[Configuration], texts: Texts) -> dict[str, Any]:
    """Families, cells, their sums by row and family, and each row's impossible faults."""
    families = families_of(matrix)
    faults = [fault for of_family in families.values() for fault in of_family]
    by_configuration = {each: at for at, each in enumerate(configurations)}
    by_fault = {fault: at for at, fault in enumerate(faults)}
    places = sorted(matrix, key=lambda place: (by_configuration[place.configuration], by_fault[place.fault]))
    return {
        "families": [{"name": family, "faults": of_family} for family, of_family in families.items()],
        "cells": columns(
            ("configuration", "fault", "outcome", "codes", "lost", "duplicated", "command", "entries"),
            (
                (by_configuration[place.configuration], by_fault[place.fault], *_summed(matrix[place], texts),
                 texts.add(worst(matrix[place]).cell.reproduce),
                 [part for entry in matrix[place] for part in _entry(entry, texts)])
                for place in places
            ),
        ),
        "sums": columns(
            ("configuration", "family", "outcome", "codes", "lost", "duplicated", "same_outcome", "cells"),
            _sums(matrix, list(families), by_configuration, texts),
        ),
        "limits": _limits(places, matrix, by_configuration, by_fault),
        "not_applicable": [
            [at for fault, at in by_fault.items() if not can_be_done(fault, *each)] for each in configurations
        ],
    }  # fmt: skip


def _sums(
    matrix: Matrix, families: Sequence[str], configurations: Mapping[Configuration, int], texts: Texts
) -> Iterator[Sequence[Any]]:
    """For each row and family: the worst outcome, the cells that have it, and all cells."""
    groups: dict[tuple[int, int], list[Sequence[Entry]]] = {}
    for place, entries in matrix.items():
        groups.setdefault((configurations[place.configuration], families.index(place.family)), []).append(entries)
    for (configuration, family), cells in sorted(groups.items()):
        together = [entry for entries in cells for entry in entries]
        outcome = worst(together).cell.outcome
        same = sum(worst(entries).cell.outcome == outcome for entries in cells)
        yield configuration, family, *_summed(together, texts), same, len(cells)


def _limits(
    places: Sequence[Place], matrix: Matrix, configurations: Mapping[Configuration, int], faults: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Returns each known limit once: its code, its cause and its cells (configuration, fault)."""
    found: dict[tuple[str, str], list[list[int]]] = {}
    for place in places:
        if worst(matrix[place]).cell.outcome == LIMIT:
            known = LIMITS[parse_fault(place.fault).action, *place.configuration[1:]]
            for code in worst(matrix[place]).codes:
                cell = [configurations[place.configuration], faults[place.fault]]
                found.setdefault((code, known[code]), []).append(cell)
    return [{"code": code, "cause": cause, "cells": cells} for (code, cause), cells in found.items()]


def _summed(entries: Sequence[Entry], texts: Texts) -> tuple[int, int, int, int]:
    """The worst outcome, its codes, and all rows that were lost and duplicated."""
    lost, duplicated = (sum(getattr(entry.cell, name) for entry in entries) for name in ("lost", "duplicated"))
    return ORDER.index(worst(entries).cell.outcome), texts.add(codes_of(entries)), lost, duplicated


def _entry(entry: Entry, texts: Texts) -> tuple[int, ...]:
    cell = entry.cell
    return entry.run, ORDER.index(cell.outcome), texts.add(cell.details), cell.lost, cell.duplicated


def _healthy(reports: Sequence[Report], used: Sequence[int]) -> Iterator[Entry]:
    """The cell of each run without a fault; its outcome is the run's verdict."""
    for number in used:
        report = reports[number]
        if not is_healthy(report):
            continue
        broken = report["verdict"] == Verdict.BROKEN
        detail = " ".join(broken_by(report)) if broken else "; ".join(report["reasons"])
        rows = report["rows"]
        where, verdict = configuration_of(report), report["verdict"]
        yield Entry(number, MatrixCell(where, NO_FAULT, verdict, detail, rows["lost"], rows["duplicated"],
                                       report["seed"], report["reproduce"]))  # fmt: skip
