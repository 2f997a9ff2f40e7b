"""The PostgreSQL sink in the suite: a table per run, and a committed reader."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.postgres import tables
from oncebench.sinks.postgres.connection import connect, dsn, error_text, redacted
from oncebench.sinks.postgres.reader import read
from oncebench.sinks.postgres.sink import KINDS
from oncebench.sinks.suite import Place, SuiteSink, Traits

MOST_NAME_BYTES = 63  # longer identifiers are cut by the server


def _provide(place: Place) -> dict[str, Any]:
    if len(place.name.encode()) > MOST_NAME_BYTES:
        raise RefusedStart(f"{place.name!r} is too long for a table's name (at most {MOST_NAME_BYTES} bytes)")
    # The reader asks for rows of transactions that it has not seen yet, and a row's id is its position.
    followed = sql.SQL(
        "ALTER TABLE {table} ADD COLUMN id bigserial, ADD COLUMN tx xid8 NOT NULL DEFAULT pg_current_xact_id(); "
        "CREATE INDEX ON {table} (tx)"
    ).format(table=sql.Identifier(place.name))
    try:
        with connect("oncebench.provide") as connection:
            connection.execute(tables.definition(place.name, place.schema))
            connection.execute(followed)
    except psycopg.Error as error:
        raise RefusedStart(f"no output table could be made at {redacted(dsn())}: {error_text(error)}") from error
    texts = [field.name for field in place.schema if field.dataType.typeName() == "string"]
    return {
        "output": place.name,
        "sink_id": place.name,
        "columns": place.schema.names,
        "texts": texts,
        "key": place.key,
    }


SUITE_SINKS = (
    SuiteSink(kind=KINDS[0], traits=Traits(ordered=False, services=("postgres",)), provide=_provide, read=read),
)
