"""The fault matrix as one text: verdicts and recovery by setting and family, then random kills.

Promise: a pure function of reports. An empty table is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from oncebench.report.comparisons import random_kills
from oncebench.report.configuration import setting_of
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
    settings = list(dict.fromkeys(map(setting_of, reports)))
    for setting, family in product(settings, FAMILIES):
        if table := fault_matrix.markdown([cell for cell in found if cell.setting == setting], family):
            yield f"{family}{setting.text}:\n\n{table}"
        if table := recovery_table.markdown([each for each in reports if setting_of(each) == setting], family):
            yield f"recovery, {family}{setting.text}: median / maximum\n\n{table}"
    for setting in settings:
        of_setting = [each for each in reports if setting_of(each) == setting]
        if table := random_kills.markdown(of_setting):
            yield f"where the random kills landed{setting.text}:\n\n{table}"
        if table := recovery_table.overall(of_setting):
            yield f"recovery from all faults{setting.text}:\n\n{table}"
    if lines := [*replication_lines(reports)]:
        yield "\n".join(lines) + "\n"
