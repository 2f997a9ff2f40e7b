"""Describes an Iceberg table for `oncebench.jobs.deliver`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class IcebergTable:
    """A table of the SQLite catalog in a warehouse; a start makes what is missing.

    Attributes:
        warehouse: the path of a folder that every task can reach, not a URI. The catalog is its file `catalog.sqlite`.
        table: `namespace.table`.
        sink_id: the permanent name of the job. It is part of the names of its table properties.
    """

    warehouse: str
    table: str
    _: KW_ONLY
    sink_id: str

    @property
    def kind(self) -> str:
        return "iceberg"

    @property
    def output(self) -> str:
        return str(Path(self.warehouse, self.table))

    @property
    def more(self) -> Mapping[str, Any]:
        return {}
