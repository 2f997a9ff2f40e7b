"""Field names that earlier versions wrote, read as their present names.

Promise: run folders and reports of every earlier version load. This version writes the present names only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Present names, by earlier names. Development builds of version 0.1 called the guarantee "delivery".
CELL_NAMES: Mapping[str, str] = {"delivery": "guarantee"}


def current_cell(cell: Any) -> Any:
    """Returns the cell of a run folder or a report with present field names.

    A value that is not an object is returned unchanged.
    """
    if not isinstance(cell, dict):
        return cell
    return {CELL_NAMES.get(name, name): value for name, value in cell.items()}
