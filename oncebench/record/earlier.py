"""Field names that earlier versions wrote, read as their present names.

Promise: run folders and reports of every earlier version load. This version writes the present names only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

# Present names, by earlier names. Development builds of version 0.1 called the guarantee "delivery".
CELL_NAMES: Mapping[str, str] = {"delivery": "guarantee"}
# Columns at the end of a stream that earlier versions did not write. Such a stream reads as nulls there.
ADDED_COLUMNS = ("key_bytes", "value_bytes")


def current_cell(cell: Any) -> Any:
    """Returns the cell of a run folder or a report with present field names.

    A value that is not an object is returned unchanged.
    """
    if not isinstance(cell, dict):
        return cell
    return {CELL_NAMES.get(name, name): value for name, value in cell.items()}


def with_added_columns(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Returns a stream's rows with the columns that its version did not write, as nulls."""
    for field in wanted:
        if field.name in ADDED_COLUMNS and field.name not in table.schema.names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table
