"""The correctness matrix as data: what each fault, and no fault at all, did to each promise.

Promise: a cell is the worst of its repeats, with all that these lost and doubled, and names the runs that it stands
for; the command is that of its worst run, with the cell's own fault alone. A run that was interrupted is left out: what
it was not asked any more is no verdict; so is the try of a rate, unless it broke its promise. Faults that are in no
family of `oncebench.scenario.fault_matrix` stand under `other`. Where there is no cell, it is told whether there
could be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncebench.audit.verdict import BROKEN
from oncebench.report.configuration import Configuration, configuration_of
from oncebench.report.outcome import LIMIT, ORDER, only_tried
from oncebench.report.schema import Report
from oncebench.report.tables.fault_matrix import MatrixCell, numbered
from oncebench.scenario.fault_matrix import FAMILIES, can_be_done
from oncebench.scenario.fault_matrix import columns as columns_of
from oncebench.site.pack import Texts, columns

HEALTHY, OTHER, NO_FAULT = "healthy", "other", "none"
_HOME = {fault: family for family in FAMILIES for fault in columns_of(family)}


@dataclass(frozen=True)
class Entry:
    """One fault in one run, and the number of the run."""

    run: int
    cell: MatrixCell

    @property
    def codes(self) -> tuple[str, ...]:
        """The anomalies for which it answers."""
        return tuple(self.cell.details.split()) if self.cell.outcome in (BROKEN, LIMIT) else ()


@dataclass(frozen=True)
class Place:
    """A cell of the matrix on the page."""

    way: Configuration
    family: str
    fault: str


Matrix = Mapping[Place, Sequence[Entry]]


def matrix_of(reports: Sequence[Report]) -> Matrix:
    """Every cell with its entries, by the order in which rows and columns stand."""
    used = [
        number for number, report in enumerate(reports) if not (report.get("interrupted") or only_tried(report))
    ]  # fmt: skip
    faulted = [Entry(used[at], cell) for at, cell in numbered([reports[number] for number in used])]
    found: dict[Place, list[Entry]] = {}
    for entry in [*_healthy(reports, used), *faulted]:
        family = HEALTHY if entry.cell.fault == NO_FAULT else _HOME.get(entry.cell.fault, OTHER)
        found.setdefault(Place(entry.cell.row, family, entry.cell.fault), []).append(entry)
    return found


def families_of(matrix: Matrix) -> dict[str, list[str]]:
    """The columns that any row has, by family, in the order of a batch."""
    asked = {HEALTHY: [NO_FAULT], **{family: list(columns_of(family)) for family in FAMILIES}}
    asked[OTHER] = sorted({place.fault for place in matrix if place.family == OTHER})
    there = {(place.family, place.fault) for place in matrix}
    kept = {family: [fault for fault in faults if (family, fault) in there] for family, faults in asked.items()}
    return {family: faults for family, faults in kept.items() if faults}


def worst(entries: Sequence[Entry]) -> Entry:
    """The entry by which a cell is known: of the worst word the first."""
    return min(entries, key=lambda entry: ORDER.index(entry.cell.outcome))


def codes_of(entries: Sequence[Entry]) -> str:
    """The codes of those entries that have the worst word."""
    word = worst(entries).cell.outcome
    return " ".join(sorted({code for entry in entries if entry.cell.outcome == word for code in entry.codes}))


def words_of(matrix: Matrix) -> dict[Configuration, str]:
    """The worst word of each row, over all of its cells."""
    rows: dict[Configuration, list[Entry]] = {}
    for place, entries in matrix.items():
        rows.setdefault(place.way, []).extend(entries)
    return {way: worst(entries).cell.outcome for way, entries in rows.items()}


def as_json(matrix: Matrix, ways: Sequence[Configuration], texts: Texts) -> dict[str, Any]:
    """Families, cells, for each row and family what its cells come to, and by row the faults without a point in it."""
    families = families_of(matrix)
    faults = [fault for of_family in families.values() for fault in of_family]
    by_way = {way: at for at, way in enumerate(ways)}
    by_fault = {fault: at for at, fault in enumerate(faults)}
    places = sorted(matrix, key=lambda place: (by_way[place.way], by_fault[place.fault]))
    return {
        "families": [{"name": family, "faults": of_family} for family, of_family in families.items()],
        "cells": columns(
            ("way", "fault", "word", "codes", "lost", "doubled", "command", "entries"),
            (
                (by_way[place.way], by_fault[place.fault], *_summed(matrix[place], texts),
                 texts.add(worst(matrix[place]).cell.reproduce),
                 [part for entry in matrix[place] for part in _entry(entry, texts)])
                for place in places
            ),
        ),
        "sums": columns(
            ("way", "family", "word", "codes", "lost", "doubled", "alike", "cells"),
            _sums(matrix, list(families), by_way, texts),
        ),
        "pointless": [[at for fault, at in by_fault.items() if not can_be_done(fault, *way)] for way in ways],
    }  # fmt: skip


def _sums(
    matrix: Matrix, families: Sequence[str], ways: Mapping[Configuration, int], texts: Texts
) -> Iterator[Sequence[Any]]:
    """For each row and family: the worst word, how many cells have it, and how many there are."""
    groups: dict[tuple[int, int], list[Sequence[Entry]]] = {}
    for place, entries in matrix.items():
        groups.setdefault((ways[place.way], families.index(place.family)), []).append(entries)
    for (way, family), cells in sorted(groups.items()):
        together = [entry for entries in cells for entry in entries]
        word = worst(together).cell.outcome
        alike = sum(worst(entries).cell.outcome == word for entries in cells)
        yield way, family, *_summed(together, texts), alike, len(cells)


def _summed(entries: Sequence[Entry], texts: Texts) -> tuple[int, int, int, int]:
    """The worst word, its codes, and all rows that were lost and doubled."""
    lost, doubled = (sum(getattr(entry.cell, name) for entry in entries) for name in ("lost", "duplicated"))
    return ORDER.index(worst(entries).cell.outcome), texts.add(codes_of(entries)), lost, doubled


def _entry(entry: Entry, texts: Texts) -> tuple[int, ...]:
    cell = entry.cell
    return entry.run, ORDER.index(cell.outcome), texts.add(cell.details), cell.lost, cell.duplicated


def _healthy(reports: Sequence[Report], used: Sequence[int]) -> Iterator[Entry]:
    """The cell of each run to which nothing was done; its verdict is the run's."""
    for number in used:
        report = reports[number]
        if report["cell"]["faults"] or report["cell"]["random_kills"]:
            continue
        broken = report["verdict"] == BROKEN
        codes = report["broken_by"] if "broken_by" in report else report["anomalies"]
        told = " ".join(sorted(codes)) if broken else "; ".join(report["reasons"])
        rows = report["rows"]
        cell = MatrixCell(configuration_of(report), NO_FAULT, report["verdict"], told, rows["lost"], rows["duplicated"],
                          report["seed"], report["reproduce"])  # fmt: skip
        yield Entry(number, cell)
