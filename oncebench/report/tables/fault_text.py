"""The fault matrix as one text: verdicts and recovery, then random kills.

Verdicts and recovery have a table for each kind of run and family.

Promise: a pure function of reports. An empty table is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from oncebench.report.comparisons import random_kills
from oncebench.report.configuration import run_kind_of
from oncebench.report.replication import replication_lines
from oncebench.report.schema import Report
from oncebench.report.tables import fault_matrix, recovery_table
from oncebench.scenario.matrix.families import FAMILIES


def markdown(reports: Sequence[Report], found: Sequence[fault_matrix.MatrixCell]) -> str:
    """The tables in Markdown, each below a line that names it.

    Args:
        reports: the runs.
        found: the cells of the matrix in these reports.
    """
    return "\n".join(_tables(reports, found))


def _tables(reports: Sequence[Report], found: Sequence[fault_matrix.MatrixCell]) -> Iterator[str]:
    kinds = list(dict.fromkeys(map(run_kind_of, reports)))
    outages = {
        kind: list(recovery_table.outages_of(each for each in reports if run_kind_of(each) == kind)) for kind in kinds
    }
    for kind, family in product(kinds, FAMILIES):
        if table := fault_matrix.markdown([cell for cell in found if cell.kind == kind], family):
            yield f"{family}{kind.text}:\n\n{table}"
        if table := recovery_table.markdown(outages[kind], family):
            yield f"recovery, {family}{kind.text}: median / maximum\n\n{table}"
    for kind in kinds:
        of_kind = [each for each in reports if run_kind_of(each) == kind]
        if table := random_kills.markdown(of_kind):
            yield f"where the random kills landed{kind.text}:\n\n{table}"
        if table := recovery_table.overall(of_kind):
            yield f"recovery from all faults{kind.text}:\n\n{table}"
    if lines := [*replication_lines(reports)]:
        yield "\n".join(lines) + "\n"
