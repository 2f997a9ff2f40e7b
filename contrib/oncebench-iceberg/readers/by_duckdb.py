"""Reads an Iceberg table with DuckDB's own extension, and prints its rows as JSON lines in a fixed order.

    python -m venv /tmp/duckdb
    /tmp/duckdb/bin/pip install duckdb==1.5.5 duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5
    /tmp/duckdb/bin/python contrib/oncebench-iceberg/readers/by_duckdb.py /data/warehouse/catalog.sqlite shop.orders

The extension fits one version of DuckDB only. It is a package of PyPI, so DuckDB fetches nothing.
"""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg

_NEWEST = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"


def main(catalog: str, table: str) -> None:
    namespace, _, name = table.rpartition(".")
    if not Path(catalog).is_file():
        sys.exit(f"{catalog} is no file. Name the catalog of the warehouse: /data/warehouse/catalog.sqlite")
    with closing(sqlite3.connect(f"{Path(catalog).resolve().as_uri()}?mode=ro", uri=True)) as file:
        newest = file.execute(_NEWEST, (namespace, name)).fetchone()
    if newest is None:
        sys.exit(f"{catalog} has no table {table}. Name the table with its namespace: shop.orders")
    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.load_extension(str(extension))
    found = connection.execute("SELECT * FROM iceberg_scan(?)", [*newest])
    names = [column[0] for column in found.description]
    rows = [json.dumps(dict(zip(names, row, strict=True)), sort_keys=True, default=str) for row in found.fetchall()]
    print("\n".join(sorted(rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])
