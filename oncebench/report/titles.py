"""What was done to a run, in a few words: its family of faults, or its faults.

Promise: a chain is called by its family wherever it stands: on the page, in its lists and in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.scenario.fault_matrix import FAMILIES, named, paired
from oncebench.scenario.fault_matrix import columns as columns_of


def title(report: Mapping[str, Any]) -> str:
    """What was done to a run; nothing for a healthy one."""
    cell = report["cell"]
    names = [named(pair) for pair in paired(cell["faults"], lambda text: "@" not in text)]
    found = next((each for each in FAMILIES if names and set(names) <= set(columns_of(each))), None)
    if found is not None and len(names) > 1:
        told = [f"{found}: {len(names)} faults"]
    else:
        told = names[:2] + ([f"{len(names) - 2} more"] if len(names) > 2 else [])
    kills = [f"{cell['random_kills']} random kills"] if cell.get("random_kills") else []
    state = [f"{cell['open_sessions']} open sessions"] if cell.get("open_sessions") else []
    return ", ".join([*told, *kills, *state])
