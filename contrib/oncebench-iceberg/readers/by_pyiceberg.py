"""Reads an Iceberg table with pyiceberg, and prints its rows as JSON lines in a fixed order.

It needs pyiceberg only.

    python contrib/oncebench-iceberg/readers/by_pyiceberg.py /data/warehouse/catalog.sqlite shop.orders

pyiceberg reads the newest metadata file of the table, without a catalog.
"""

import json
import sys

from newest_metadata import newest_metadata
from pyiceberg.table import StaticTable


def main(catalog: str, table: str) -> None:
    rows = StaticTable.from_metadata(newest_metadata(catalog, table)).scan().to_arrow().to_pylist()
    print("\n".join(sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: by_pyiceberg.py CATALOG_FILE NAMESPACE.TABLE")
    main(*sys.argv[1:])
