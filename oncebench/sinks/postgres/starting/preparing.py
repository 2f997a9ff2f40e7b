"""The start's check of prepared transactions: free slots, and one row rolled back.

PostgreSQL cannot prepare a transaction that has notified or has used a temporary table, and a trigger of the table may
do either. Promise: nothing stays, neither row nor prepared transaction; if the process dies in between, the next start
rolls it back. The row is made up, so a constraint may refuse it. Then the check runs the table's statement triggers
only, by a COPY of no row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import psycopg
from psycopg import sql
from pyspark.sql.types import StructType

from oncebench.delivery.errors import NoPostgres, RefusedStart
from oncebench.delivery.failures.postgres import IDEMPOTENT
from oncebench.sinks.postgres.connection import TIME_OUTS, Names, error_text
from oncebench.sinks.postgres.slots import wait_for_slots

# A value of each column type that a table may have for our rows (`tables.SQL_TYPES`).
_VALUES: Mapping[str, str] = {
    "string": "{}", "boolean": "false", "binary": "", "date": "2000-01-01",
    "timestamp": "2000-01-01 00:00:00+00", "timestamp_ntz": "2000-01-01 00:00:00",
}  # fmt: skip
_UUID = "00000000-0000-0000-0000-000000000000"
_log = logging.getLogger(__name__)


def time_outs(connection: psycopg.Connection) -> list[str]:
    """Returns the time-outs that this server has."""
    found = connection.execute("SELECT name FROM pg_settings WHERE name = ANY(%s)", (list(TIME_OUTS),)).fetchall()
    return sorted(name for (name,) in found)


def refuse_unpreparable(connection: psycopg.Connection, names: Names, schema: StructType, partitions: int) -> None:
    """Checks that the tasks of a batch can prepare their transactions.

    Raises:
        NoPostgres: too few slots are free; others hold them, for example jobs that start after a crash of the server.
        RefusedStart: the table's triggers do what cannot be prepared.
    """
    if (trouble := wait_for_slots(connection, names, partitions)) is not None:
        raise NoPostgres(trouble)
    gid = names.fresh_gid(0, 0)
    connection.execute("BEGIN")
    try:
        _insert(connection, names.table, schema)
        connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gid)))
    except psycopg.errors.FeatureNotSupported as error:
        connection.execute("ROLLBACK")
        raise RefusedStart(
            f"table {names.table!r} cannot be written with two-phase: {error_text(error)}. A trigger or partition of "
            f"the table does this. {IDEMPOTENT}."
        ) from error
    except psycopg.errors.IntegrityError as error:  # a constraint that is checked at the end
        connection.execute("ROLLBACK")
        _log.warning("could not check whether table %s can be prepared: %s", names.table, error_text(error))
        return
    connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))


def _insert(connection: psycopg.Connection, table: str, schema: StructType) -> None:
    """Copies a made-up row, or no row if the table refuses it."""
    columns = sql.SQL(", ").join(sql.Identifier(field.name) for field in schema)
    copying = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), columns)
    for row in _rows(connection, table, schema):
        connection.execute("SAVEPOINT made_up")
        try:
            with connection.cursor() as cursor, cursor.copy(copying) as copy:
                if row is not None:
                    copy.write_row(row)
            return
        except psycopg.errors.FeatureNotSupported:
            raise
        except psycopg.DatabaseError:
            if row is None:
                raise
            connection.execute("ROLLBACK TO made_up")


def _rows(connection: psycopg.Connection, table: str, schema: StructType) -> list[tuple[str, ...] | None]:
    kinds: dict[str, str] = dict(
        connection.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass(%s) "
            "AND attnum > 0",
            (sql.Identifier(table).as_string(connection),),
        ).fetchall()
    )
    row = (
        _UUID if kinds.get(field.name) == "uuid" else _VALUES.get(field.dataType.typeName(), "0") for field in schema
    )
    return [tuple(row), None]
