"""Reads an Iceberg table with pyiceberg, and prints its rows as JSON lines in a fixed order.

It needs pyiceberg only.

    python contrib/oncebench-iceberg/readers/by_pyiceberg.py /data/warehouse/catalog.sqlite shop.orders

pyiceberg reads the newest metadata file of the table, without a catalog.
"""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from pyiceberg.table import StaticTable

_NEWEST = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"


def main(catalog: str, table: str) -> None:
    namespace, _, name = table.rpartition(".")
    if not Path(catalog).is_file():
        sys.exit(f"{catalog} is no file. Name the catalog of the warehouse: /data/warehouse/catalog.sqlite")
    with closing(sqlite3.connect(f"{Path(catalog).resolve().as_uri()}?mode=ro", uri=True)) as file:
        found = file.execute(_NEWEST, (namespace, name)).fetchone()
    if found is None:
        sys.exit(f"{catalog} has no table {table}. Name the table with its namespace: shop.orders")
    rows = StaticTable.from_metadata(found[0]).scan().to_arrow().to_pylist()
    print("\n".join(sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])
