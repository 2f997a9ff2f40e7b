"""The unique index by which an upsert finds a row.

It is the table's own, or one that the start makes.

Promise: the index refuses no row whose id is new, and finds each row whose id is there.
What can go wrong: the table holds a row twice, and the start is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql
from pyspark.sql.types import StructType

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.failures.postgres import NEW_JOB
from oncebench.sinks.postgres.connection import error_text

# Key of an advisory lock: one session at a time makes tables and indexes. Of two concurrent CREATE TABLE, one fails.
MAKING = 0x6F6E6365  # "once"
_OWN_KEY = """
SELECT bool_and(x.indimmediate) FROM pg_index x
WHERE x.indrelid = to_regclass(%(table)s) AND x.indisunique AND x.indisvalid AND x.indpred IS NULL
AND x.indexprs IS NULL AND x.indnkeyatts = cardinality(%(names)s::text[])
AND NOT EXISTS (SELECT FROM pg_collation c WHERE c.oid = ANY (x.indcollation::oid[]) AND NOT c.collisdeterministic)
AND NOT EXISTS (
  SELECT FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k (number, place)
  JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.number
  WHERE k.place <= x.indnkeyatts AND a.attname <> ALL (%(names)s))
"""


def row_id(names: Sequence[str], schema: StructType) -> sql.Composed:
    """Returns the expressions of the unique index over a row's id.

    An index entry takes at most some 2,700 bytes, and a text may be longer. Therefore the index contains the text's
    SHA-256 (MD5 collisions can be made on purpose). The expression uses decode() because convert_to() is not immutable.
    """
    hashed = r"sha256(decode(replace({}, E'\\', E'\\\\'), 'escape'))"
    texts = {field.name for field in schema if field.dataType.typeName() == "string"}
    return sql.SQL(", ").join(sql.SQL(hashed if name in texts else "{}").format(sql.Identifier(name)) for name in names)


def make_row_ids_unique(
    connection: psycopg.Connection, table: str, names: Sequence[str], schema: StructType
) -> sql.Composed:
    """Makes the unique index that an upsert needs, if it is missing.

    Returns its columns or expressions, for ON CONFLICT.

    A unique index over the columns themselves, such as the table's primary key, is preferred. PostgreSQL names a new
    index, so its name is always free.

    Raises:
        RefusedStart: the table holds a row twice, has a DEFERRABLE key, which ON CONFLICT does not take, or has
            partitions that allow no such index.
    """
    ids, own = row_id(names, schema), sql.SQL(", ").join(map(sql.Identifier, names))
    usable = _own_key(connection, table, names)
    if usable and has_unique_index(connection, sql.Identifier(table), names, own):
        return own
    if usable is False and ids.as_string() == own.as_string():
        raise RefusedStart(
            f"table {table!r} has a DEFERRABLE key over {', '.join(names)}, which upsert cannot use. Make it NOT "
            f"DEFERRABLE, or take the variant idempotent {NEW_JOB}."
        )
    with connection.transaction():  # of two first starts at a time, one makes the index
        connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (MAKING, table))
        if not has_unique_index(connection, sql.Identifier(table), names, ids):
            _make_index(connection, table, names, ids)
    return ids


def _make_index(connection: psycopg.Connection, table: str, names: Sequence[str], ids: sql.Composed) -> None:
    try:
        connection.execute(sql.SQL("CREATE UNIQUE INDEX ON {} ({})").format(sql.Identifier(table), ids))
    except psycopg.errors.UniqueViolation:
        raise RefusedStart(
            f"table {table!r} holds a row ({', '.join(names)}) twice, so that no upsert can work on it. Remove the "
            "duplicated rows or, in a new job, write to a new table."
        ) from None
    except psycopg.errors.FeatureNotSupported as error:  # of a partitioned table
        raise RefusedStart(
            f"table {table!r} lacks a usable unique index over exactly {', '.join(names)}, and upsert cannot make its "
            f"own: {error_text(error)}. Make a primary key over exactly these columns (the partition key must be among "
            f"them), or take idempotent {NEW_JOB}."
        ) from error


def _own_key(connection: psycopg.Connection, table: str, names: Sequence[str]) -> bool | None:
    """Whether an upsert's ON CONFLICT can use the unique indexes over exactly these columns.

    Returns None if there is no such index, and False if one is DEFERRABLE. An index does not count if its collation
    treats different texts as equal, for example by ignoring case: one row would overwrite another.
    """
    values = {"table": sql.Identifier(table).as_string(connection), "names": list(names)}
    found = connection.execute(_OWN_KEY, values).fetchone()
    return None if found is None else found[0]


def has_unique_index(
    connection: psycopg.Connection, table: sql.Identifier, names: Sequence[str], ids: sql.Composable
) -> bool:
    """Whether ON CONFLICT finds a valid unique index over these expressions of the columns.

    PostgreSQL plans a statement and does not run it.
    """
    copied = sql.SQL("EXPLAIN INSERT INTO {table} ({cols}) SELECT {cols} FROM {table} ON CONFLICT ({ids}) DO NOTHING")
    listed = sql.SQL(", ").join(map(sql.Identifier, names))
    try:
        with connection.transaction():
            connection.execute(copied.format(table=table, cols=listed, ids=ids))
    except psycopg.errors.InvalidColumnReference:  # "no unique or exclusion constraint matching"
        return False
    return True
