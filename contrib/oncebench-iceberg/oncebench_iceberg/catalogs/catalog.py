"""Opens the catalog of a place when it is first needed.

Promise: `find` and `load` change nothing, and make no catalog. `make` makes what is missing.

What can go wrong: see `oncebench_iceberg.catalogs.errors`.
"""

from __future__ import annotations

import pyiceberg.catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from oncebench_iceberg.catalogs.errors import NO_TABLE
from oncebench_iceberg.catalogs.place import Place


class Catalog:
    """The catalog of one place.

    Args:
        place: the table.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._opened: pyiceberg.catalog.Catalog | None = None

    def find(self) -> Table | None:
        """Returns the table; None if there is none. Makes no file."""
        if not self.place.there():
            return None
        try:
            return self._catalog().load_table(self.place.table)
        except NO_TABLE:
            return None

    def load(self) -> Table:
        """Returns the newest state of the table. Raises `NoSuchTableError` if it is gone."""
        found = self.find()
        if found is None:
            raise NoSuchTableError(f"there is no table {self.place}")
        return found

    def make(self, schema: Schema) -> Table:
        """Returns the table, and makes catalog, namespace and table if they are missing."""
        self.place.prepare()
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self.place.table.rpartition(".")[0])
        return catalog.create_table_if_not_exists(self.place.table, schema, properties=dict(self.place.made_with))

    def close(self) -> None:
        """Closes the connections to the catalog."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _catalog(self) -> pyiceberg.catalog.Catalog:
        if self._opened is None:
            self._opened = self.place.open()
        return self._opened
