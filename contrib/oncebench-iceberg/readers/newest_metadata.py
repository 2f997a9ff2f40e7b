"""Finds the newest metadata file of a table.

The scripts of this folder share this module. It needs nothing but Python.
"""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

_NEWEST = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"


def newest_metadata(catalog: str, table: str) -> str:
    """Returns the file's address from the SQLite catalog, which is only read.

    A wrong name ends the script with a sentence.
    """
    namespace, _, name = table.rpartition(".")
    if not Path(catalog).is_file():
        sys.exit(f"{catalog} is no file. Name the catalog of the warehouse: /data/warehouse/catalog.sqlite")
    with closing(sqlite3.connect(f"{Path(catalog).resolve().as_uri()}?mode=ro", uri=True)) as file:
        try:
            found = file.execute(_NEWEST, (namespace, name)).fetchone()
        except sqlite3.Error as error:
            sys.exit(
                f"{catalog} is no catalog ({error}). Name the catalog of the warehouse: /data/warehouse/catalog.sqlite"
            )
    if found is None:
        sys.exit(f"{catalog} has no table {table}. Name the table with its namespace: shop.orders")
    return str(found[0])
