"""The SQLite sink in the suite: a file with its tables, and a committed reader."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from oncebench.sinks.reader import Rows, Snapshots, now_us, rows_of
from oncebench.sinks.sqlite.sink import KINDS, OWN_TABLES, SQL_TYPES, connect, quoted
from oncebench.sinks.suite import Place, SuiteSink, Traits


def _provide(place: Place) -> dict[str, Any]:
    path = str(place.folder / "rows.sqlite")
    columns = ", ".join(f"{quoted(field.name)} {SQL_TYPES[field.dataType.typeName()]}" for field in place.schema)
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")  # readers and the writer do not wait for each other
        for statement in (f"CREATE TABLE rows (id INTEGER PRIMARY KEY, {columns})", *OWN_TABLES):
            connection.execute(statement)
    return {"output": path, "columns": place.schema.names, "key": place.key}


def _read(target: Mapping[str, Any]) -> Snapshots:
    connection = connect(target["output"])
    names: list[str] = target["columns"]
    newest = 0

    def fresh() -> Rows:
        nonlocal newest
        # There is one writer at a time, so ids are committed in their order.
        columns = ", ".join(map(quoted, names))
        query = f"SELECT id, {columns} FROM rows WHERE id > ? ORDER BY id"  # noqa: S608  names are quoted
        found = connection.execute(query, (newest,)).fetchall()
        seen_us = now_us()
        newest = found[-1][0] if found else newest
        rows = [dict(zip(names, row[1:], strict=True)) for row in found]
        times_ms = [seen_us // 1000] * len(found)
        return rows_of([(0, row[0]) for row in found], times_ms, rows, target["key"], seen_us)

    return Snapshots(fresh, close=connection.close)


SUITE_SINKS = (
    SuiteSink(
        kind=KINDS[0],
        traits=Traits(ordered=True),
        provide=_provide,
        read=_read,
        single_writer=True,
        writes_local_files=True,
    ),
)
