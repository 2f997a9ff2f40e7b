"""Recovery and landings as data: the rows of the tables in `reports`, each with the runs that it stands on.

Promise: nothing is counted here that `recovery_table` and `landings` do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from oncebench.report.comparisons import random_kills
from oncebench.report.configuration import Configuration, configuration_of
from oncebench.report.schema import Report
from oncebench.report.tables import recovery_table
from oncebench.scenario.fault_matrix import FAMILIES
from oncebench.scenario.fault_matrix import columns as columns_of


def as_json(reports: Sequence[Report], ways: Sequence[Configuration]) -> dict[str, Any]:
    """Recovery by row, family and nemesis; its quantiles over all faults; where random kills landed."""
    used = [(number, report) for number, report in enumerate(reports) if not report.get("interrupted")]
    sound = [report for _, report in used]
    return {
        "headings": list(recovery_table.HEADINGS[4:]),
        "rows": list(_recovery(used, ways)),
        "overall": {
            "headings": list(recovery_table.OVERALL),
            "rows": [list(row) for row in recovery_table.overall_table(sound)],
        },
        "landings": {
            "headings": list(random_kills.HEADINGS[3:]),
            "rows": [
                {
                    "way": ways.index((row[0], row[1], row[2])),
                    "cells": list(row[3:]),
                    "runs": [
                        at for at, each in used if configuration_of(each) == row[:3] and each["cell"]["random_kills"]
                    ],
                }
                for row in random_kills.table(sound)
            ],
        },
    }


def _recovery(used: Sequence[tuple[int, Report]], ways: Sequence[Configuration]) -> Iterator[dict[str, Any]]:
    sound = [report for _, report in used]
    outages = [(number, outage) for number, report in used for outage in recovery_table.outages_of([report])]
    for family in FAMILIES:
        columns = columns_of(family)
        for row in recovery_table.table(sound, family):
            runs = (
                number for number, outage in outages
                if (*outage.row, outage.action) == row[:4] and outage.faults in columns
            )  # fmt: skip
            yield {
                "family": family,
                "way": ways.index((row[0], row[1], row[2])),
                "nemesis": row[3],
                "cells": list(row[4:]),
                "runs": list(dict.fromkeys(runs)),
            }
