"""The faults of a run in a few words: the family of faults, or the faults themselves.

Promise: a chain of faults has the name of its family everywhere: on the page, in its lists and in the tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncebench.report.configuration import run_kind_of
from oncebench.report.schema import Report
from oncebench.scenario.matrix.families import FAMILIES, named, paired
from oncebench.scenario.matrix.families import columns as columns_of

_FEW = 2  # faults that are listed by name


def title(report: Report) -> str:
    """Returns the faults, random kills, open sessions and kind of a run; empty if healthy."""
    cell = report["cell"]
    kills = [f"{cell['random_kills']} random kills"] if cell.get("random_kills") else []
    state = [f"{cell['open_sessions']} open sessions"] if cell.get("open_sessions") else []
    found = ", ".join([*faults_title(cell["faults"]), *kills, *state])
    return found and found + run_kind_of(report).text


def faults_title(faults: Sequence[str]) -> list[str]:
    """`kills: 9 faults` for a chain of one family; else the first faults.

    With the number of the other faults.
    """
    names = [named(pair) for pair in paired(faults, lambda text: "@" not in text)]
    family = next((each for each in FAMILIES if names and set(names) <= set(columns_of(each))), None)
    if family is not None and len(names) > 1:
        return [f"{family}: {len(names)} faults"]
    return names[:_FEW] + ([f"{len(names) - _FEW} more"] if len(names) > _FEW else [])
