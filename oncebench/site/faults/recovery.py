"""Recovery and random kills as data: the rows of the tables in `report`, each with its runs.

Promise: every count comes from `recovery_table` and `random_kills`. A mark that no fault has is left out.
Runs of another kind (`RunKind`) are left out too. `rows` and the rows of `overall` are lists of rows for each of
`machines`. A row of random kills has what the text explains first, and then the failpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from oncebench.report.comparisons import random_kills
from oncebench.report.configuration import USUAL, Configuration, configuration_of, run_kind_of
from oncebench.report.schema import Report
from oncebench.report.tables import recovery_table
from oncebench.scenario.matrix.families import FAMILIES
from oncebench.scenario.matrix.families import columns as columns_of

# What a row of random kills begins with. `runs` is the page's own count of the reports.
_FIRST, _LEFT_OUT = ("kills", "lost", "duplicated", "rate at most"), ("runs",)
_KILL_HEADINGS = random_kills.HEADINGS[3:]
_UNITS = {"lost": "rows lost", "duplicated": "rows duplicated"}
_POINTS = tuple(name for name in _KILL_HEADINGS if name not in (*_FIRST, *_LEFT_OUT))

Found = tuple[int, recovery_table.Outage]  # with the number of its report


def as_json(reports: Sequence[Report], configurations: Sequence[Configuration]) -> dict[str, Any]:
    """Returns recovery by machine, configuration, family and fault, and over all faults.

    Adds random kills by point.
    """
    used = [
        (number, report) for number, report in enumerate(reports)
        if not report.get("interrupted") and run_kind_of(report) == USUAL
    ]  # fmt: skip
    complete = [report for _, report in used]
    overall = recovery_table.overall_tables(complete)
    machines = list(overall)
    found = [(number, outage) for number, report in used for outage in recovery_table.outages_of([report])]
    return {
        "machines": machines,
        "headings": list(recovery_table.HEADINGS[4:]),
        "rows": [list(_recovery(found, configurations, machine)) for machine in machines],
        "overall": {
            "headings": list(recovery_table.OVERALL),
            "rows": [[list(row) for row in rows if row[1] != "0"] for rows in overall.values()],
        },
        "random_kills": {
            "headings": [_UNITS.get(name, name) for name in _FIRST],
            "points": list(_POINTS),
            "rows": [
                {
                    "configuration": configurations.index((row[0], row[1], row[2])),
                    "cells": [cells[name] for name in _FIRST],
                    "points": [cells[name] for name in _POINTS],
                    "runs": [
                        at for at, each in used if configuration_of(each) == row[:3] and each["cell"]["random_kills"]
                    ],
                }
                for row in random_kills.table(complete)
                for cells in [dict(zip(_KILL_HEADINGS, row[3:], strict=True))]
            ],
        },
    }


def _recovery(
    found: Sequence[Found], configurations: Sequence[Configuration], machine: str
) -> Iterator[dict[str, Any]]:
    """The rows of a machine."""
    outages = [outage for _, outage in found]
    of_row: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for number, outage in found:
        if outage.machine == machine:
            of_row.setdefault((*outage.row, outage.action), []).append((number, outage.faults))
    for family in FAMILIES:
        columns = columns_of(family)
        for row in recovery_table.tables(outages, family).get(machine, ()):
            runs = (number for number, faults in of_row[row[:4]] if faults in columns)
            yield {
                "family": family,
                "configuration": configurations.index((row[0], row[1], row[2])),
                "action": row[3],
                "cells": list(row[4:]),
                "runs": list(dict.fromkeys(runs)),
            }
