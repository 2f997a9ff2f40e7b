"""Reads an Iceberg table with DuckDB's own extension, and prints its rows.

The rows are JSON lines in a fixed order.

    python -m venv /tmp/duckdb
    /tmp/duckdb/bin/pip install duckdb==1.5.5 duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5
    /tmp/duckdb/bin/python contrib/oncebench-iceberg/readers/by_duckdb.py /data/warehouse/catalog.sqlite shop.orders

The extension fits one version of DuckDB only. It is a package of PyPI, so DuckDB fetches nothing.
"""

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
from newest_metadata import newest_metadata


def main(catalog: str, table: str) -> None:
    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.load_extension(str(extension))
    found = connection.execute("SELECT * FROM iceberg_scan(?)", [newest_metadata(catalog, table)])
    names = [column[0] for column in found.description]
    rows = [json.dumps(dict(zip(names, row, strict=True)), sort_keys=True, default=str) for row in found.fetchall()]
    print("\n".join(sorted(rows)))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: by_duckdb.py CATALOG_FILE NAMESPACE.TABLE")
    main(*sys.argv[1:])
