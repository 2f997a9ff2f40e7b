"""Reads an Iceberg table with pyiceberg, and prints its rows as JSON lines in a fixed order.

It needs pyiceberg only.

    python contrib/oncebench-iceberg/readers/by_pyiceberg.py /data/warehouse/catalog.sqlite shop.orders
"""

import json
import sys
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog


def main(catalog: str, table: str) -> None:
    opened = SqlCatalog("default", uri=f"sqlite:///{catalog}", warehouse=str(Path(catalog).parent))
    rows = opened.load_table(table).scan().to_arrow().to_pylist()
    opened.close()
    print("\n".join(sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])
