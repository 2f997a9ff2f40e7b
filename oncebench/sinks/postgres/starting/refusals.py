"""The start's checks of the output table, of row-level security and of unique indexes.

The module also has the error of a server that cannot be used.

Promise: a start is refused if policies hide rows of the ledger or the output from this role: a marker that cannot be
seen looks like one that was never written, and its rows would be written again. A policy that comes later makes each
statement of the sink fail, because its sessions run with `row_security = off` (`connection.connect`).

Under at-least-once, a replay writes a row again. A unique index over the rows' own columns refuses it at each restart.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import psycopg
from psycopg import sql
from pyspark.sql.types import StructType

from oncebench.delivery.errors import NoPostgres, RefusedStart
from oncebench.delivery.failures.postgres import LOGIN, NEW_JOB, of_sqlstate
from oncebench.sinks.postgres import tables
from oncebench.sinks.postgres.connection import dsn, error_text, redacted

# Parts of the server's answers to a login that will never succeed, and of libpq's errors about certificates. libpq
# returns the server's text without a code, in the language of the server's lc_messages.
_REFUSED_LOGIN = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied",
                  "not permitted to log in", "certificate verify failed", "does not match host name",
                  "server does not support SSL")  # fmt: skip
_ANSWERED = "FATAL"  # begins an answer of the server, so the network works; most languages do not translate it
_log = logging.getLogger(__name__)
_ACTIVE = "SELECT row_security_active(to_regclass(%s)::oid), current_user WHERE to_regclass(%s) IS NOT NULL"
# A key column that the rows do not fill, such as a serial number, distinguishes a row from its copy.
_UNIQUE = """
SELECT i.relname, pg_get_indexdef(x.indexrelid),
  CASE WHEN c.conname IS NULL THEN format('DROP INDEX %%s', x.indexrelid::regclass)
       ELSE format('ALTER TABLE %%s DROP CONSTRAINT %%I', x.indrelid::regclass, c.conname) END
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
LEFT JOIN pg_constraint c ON c.conindid = x.indexrelid AND c.contype IN ('p', 'u', 'x')
WHERE x.indrelid = to_regclass(%s) AND (x.indisunique OR x.indisexclusion) AND NOT EXISTS (
  SELECT FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k (number, place)
  JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.number
  WHERE k.place <= x.indnkeyatts AND a.attname <> ALL (%s))
ORDER BY 1
"""


def check_table(connection: psycopg.Connection, table: str, schema: StructType, inserts: bool) -> None:
    """Raises RefusedStart if the output table does not exist or cannot take rows of this schema.

    `inserts`: see `tables.table_error`.
    """
    found = tables.columns_of(connection, table)
    if not found and "." in table:
        place, _, name = table.rpartition(".")
        raise RefusedStart(
            f"table {table!r} cannot take the output: there is none of this name, dot included, in this database and "
            f"search_path. The output is one identifier and takes its schema from search_path. For table {name!r} of "
            f"schema {place!r}, set the output to {name!r} and run: "
            f"ALTER ROLE {sql.Identifier(connection.info.user).as_string(connection)} SET search_path = "
            f"{sql.Identifier(place).as_string(connection)}"
        )
    wrong = tables.table_error(found, schema, inserts) if found else "there is none in this database and search_path"
    kept = connection.execute(
        "SELECT 1 FROM pg_class WHERE oid = to_regclass(%s) AND relkind IN ('r', 'p')",
        (sql.Identifier(table).as_string(connection),),
    ).fetchone()
    if wrong is None and kept is None:
        wrong = "it is a view or a foreign table, and so not kept when the server is killed"
    if wrong is not None:
        statement = tables.definition(table, schema).as_string(connection)
        step = "Alter it to these columns or, in a new job, name another table with them:" if found else "Make it with:"
        raise RefusedStart(f"table {table!r} cannot take the output: {wrong}. {step} {statement}")
    tables.refuse_unlogged(connection, table)


def warn_of_foreign(connection: psycopg.Connection, table: str) -> None:
    """Warns of foreign partitions.

    Another server commits their rows by itself, before our commit or without it. They are not refused, because they may
    hold only old rows, and none of ours.
    """
    found = connection.execute(
        "SELECT relid::text FROM pg_partition_tree(to_regclass(%s)) JOIN pg_class c ON c.oid = relid "
        "WHERE relkind = 'f' ORDER BY 1",
        (sql.Identifier(table).as_string(connection),),
    ).fetchall()
    if found:
        _log.warning(
            "table %s has foreign partitions (%s): a row that goes there may be written twice after a crash, and fails "
            "under two-phase. Detach those that new rows reach.",
            table,
            ", ".join(name for (name,) in found),
        )


def refuse_row_security(connection: psycopg.Connection, names: Sequence[str]) -> None:
    """Raises RefusedStart if row-level security applies to this role in one of the tables."""
    for table in names:
        name = sql.Identifier(table).as_string(connection)
        found = connection.execute(_ACTIVE, (name, name)).fetchone()
        if found is not None and found[0]:
            raise RefusedStart(
                f"row-level security may hide rows of table {table!r} from role {found[1]!r}, and the sink must see "
                "all of its rows and markers. Nothing was written. Run as a superuser "
                f"ALTER ROLE {sql.Identifier(found[1]).as_string(connection)} BYPASSRLS, or run ALTER TABLE {name} "
                "DISABLE ROW LEVEL SECURITY."
            )


def refuse_unique_rows(connection: psycopg.Connection, table: str, columns: Sequence[str]) -> None:
    """Raises RefusedStart if an index of the table refuses a row that is written again.

    Args:
        connection: to the server.
        table: the output table.
        columns: those that the rows fill.
    """
    name = sql.Identifier(table).as_string(connection)
    found = connection.execute(_UNIQUE, (name, list(columns))).fetchall()
    if found:
        index, definition, statement = found[0]
        raise RefusedStart(
            f"table {table!r} has the index {index} ({definition}), which takes a row once: at-least-once writes rows "
            f"again after a crash, and each restart would fail. Nothing was written. Run {statement}, or take "
            f"exactly-once {NEW_JOB}."
        )


def unusable(
    error: psycopg.Error, otherwise: str = "No row was read or written; start again when it works."
) -> RefusedStart | NoPostgres:
    """Returns a start's error: RefusedStart if the same start would meet it again.

    Args:
        error: of the server or of the login.
        otherwise: the next step if another start may succeed.
    """
    text = f"PostgreSQL at {redacted(dsn())} cannot be used: {error_text(error)}"
    if of_sqlstate(error.sqlstate).permanent or _wrong_place(error):
        remedy = of_sqlstate(error.sqlstate).remedy if error.sqlstate else LOGIN
        return RefusedStart(f"{text}. {remedy}, then start again.")
    remedy = of_sqlstate(error.sqlstate).remedy if error.sqlstate else ""
    if error.sqlstate is None and _ANSWERED in str(error):  # perhaps a refused login in another language
        remedy = f"If the server refuses the login: {LOGIN}"
    step = f"{remedy}. " if remedy else ""
    return NoPostgres(f"{text}. {step}{otherwise}")


def _wrong_place(error: psycopg.Error) -> bool:
    """Whether the DSN itself failed: libpq gives no SQLSTATE for a refused login."""
    return error.sqlstate is None and any(words in str(error) for words in _REFUSED_LOGIN)
