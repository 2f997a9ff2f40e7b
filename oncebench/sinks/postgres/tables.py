"""PostgreSQL tables: output table, ledger and drivers' epochs; definitions and checks.

The output table has the columns of a row. The suite adds `id` (the row's position) and `tx` (the transaction that wrote
it, indexed: the suite's reader asks for transactions that it has not seen yet). `oncebench_ledger` has a row per
partition and batch that was written exactly once; the transaction that wrote the batch adds it, with the name of its
driver. `oncebench_epochs` has each sink_id's newest epoch.

Promise: every value of the types in SQL_TYPES is read back unchanged, and so is a null. PostgreSQL's text cannot hold
U+0000, so U+0000 is stored as U+2400 and a 0, and U+2400 itself twice. Two types of a user's table keep a text's value
but not its form: `jsonb` (order, blanks and repeated names of its fields) and `uuid` (case).

What can go wrong: a column of another type, or a table with other columns, is refused, and the message names the
column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyspark.sql.types import DataType, DecimalType, StructType

from oncebench.delivery import digest, quarantine
from oncebench.delivery.contract import Holder, Mark
from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.postgres.starting.keys import MAKING, has_unique_index

# PostgreSQL's type of each Spark type, then other types of a user's table that take the same text. Any other Spark type
# is refused with the column's name.
SQL_TYPES: Mapping[str, tuple[str, ...]] = {
    "string": ("text", "character varying", "uuid", "json", "jsonb"),
    "byte": ("smallint", "integer", "bigint", "numeric"),
    "short": ("smallint", "integer", "bigint", "numeric"),
    "integer": ("integer", "bigint", "numeric"),
    "long": ("bigint", "numeric"),
    "float": ("real", "double precision"),
    "double": ("double precision",),
    "decimal": ("numeric",),
    "boolean": ("boolean",),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamp with time zone",),
    "timestamp_ntz": ("timestamp without time zone",),
}
# As many as the journal keeps (oncebench.delivery.journal). A checkpoint that is rolled back further is refused.
KEEP_BATCHES = 100
MICROSECONDS = 6
# The digits after the point in `numeric(10,2)` or `timestamp(3) with time zone`.
_DIGITS = re.compile(r"\((?:\d+,)?(-?\d+)\)")

# Name, primary key, and columns with their types.
OWN_TABLES: tuple[tuple[LiteralString, Sequence[LiteralString], Mapping[LiteralString, LiteralString]], ...] = (
    (
        "oncebench_ledger",
        ("sink_id", "partition", "batch"),
        {
            "sink_id": "text",
            "partition": "integer",
            "batch": "bigint",
            "rows": "bigint",
            "digest": "text",
            "driver": "text",
        },
    ),
    ("oncebench_epochs", ("sink_id",), {"sink_id": "text", "epoch": "bigint"}),
)
LEDGER, EPOCHS = (sql.Identifier(table) for table, _, _ in OWN_TABLES)
NUL, STAND_IN = "\x00", "\u2400"
# The order matters: first the stand-in, then NUL, then the characters that COPY's text format escapes.
_STORED = ((STAND_IN, STAND_IN * 2), (NUL, STAND_IN + "0"))
_COPY = (*_STORED, ("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_BACK = re.compile(f"{STAND_IN}([{STAND_IN}0])")


@dataclass(frozen=True)
class Column:
    """A column as the server describes it.

    Args:
        name, kind: its name and type.
        needed: an insert must give a value.
        generated: no statement may give a value.
        identity: COPY may give a value, and a plain INSERT must not (GENERATED ALWAYS AS IDENTITY).
    """

    name: str
    kind: str
    needed: bool
    generated: bool = False
    identity: bool = False


def stored(key: str) -> str:
    """Returns a text in its stored form."""
    for found, put in _STORED:
        key = key.replace(found, put)
    return key


def read_back(text: str) -> str:
    """Returns the text of a stored form; the inverse of `stored`."""
    return _BACK.sub(lambda found: NUL if found[1] == "0" else STAND_IN, text) if STAND_IN in text else text


def copy_text(batch: pa.RecordBatch) -> memoryview:
    """Returns a record batch in COPY's text format; a null is `\\N`.

    The columns are in the batch's order.
    """
    texts = [_text(column).fill_null("\\N") for column in batch.columns]
    lines = pc.binary_join_element_wise(pc.binary_join_element_wise(*texts, "\t"), "", "\n")
    # Arrow's buffer holds the lines in sequence, so no row is copied or read one by one.
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]]


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _copied(column.cast(pa.string()))
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array([None if each is None else f"\\\\x{each.hex()}" for each in column.to_pylist()], pa.string())
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        # Arrow writes an offset without its seconds, which many had before 1900.
        column = column.cast(pa.timestamp("us", "UTC"))
    return column.cast(pa.string())


def _copied(texts: pa.Array) -> pa.Array:
    for found, put in _COPY:
        texts = pc.replace_substring(texts, pattern=found, replacement=put)
    return texts


def unsupported(schema: StructType) -> str | None:
    """Returns why PostgreSQL cannot store rows of this schema, and what to do; None if it can."""
    for field in schema:
        if field.name != quarantine.COLUMN and field.dataType.typeName() not in SQL_TYPES:
            return (
                f"column {field.name!r} is {field.dataType.simpleString()}, which this sink does not store: cast it "
                "to string, or make an array, struct or map a string with to_json"
            )
    return None


def table_error(found: Mapping[str, Column], schema: StructType, inserts: bool = False) -> str | None:
    """Returns why a table with these columns cannot take rows of this schema; None if it can.

    Args:
        found: the table's columns by name.
        schema: of the rows.
        inserts: whether the rows come by INSERT, not by COPY.
    """
    names = {field.name for field in schema}
    for field in schema:
        kinds = SQL_TYPES[field.dataType.typeName()]
        if field.name not in found:
            return f"it has no column {field.name} ({kinds[0]})"
        if re.sub(r"\(.*?\)", "", found[field.name].kind) not in kinds:
            return f"its column {field.name} is {found[field.name].kind}, not {kinds[0]}"
        if _rounds(found[field.name].kind, field.dataType):
            return f"its column {field.name} is {found[field.name].kind}, which would round: make it {kinds[0]}"
        if found[field.name].kind.startswith("character varying("):  # SQL: longer by blanks alone is no error
            cuts = "which would cut blanks at the end"
            return f"its column {field.name} is {found[field.name].kind}, {cuts}: it must be {kinds[0]}"
        if found[field.name].generated:
            return (
                f"its column {field.name} is generated, and the rows fill it (ALTER TABLE .. ALTER COLUMN .. DROP "
                "EXPRESSION makes it a plain one)"
            )
        if inserts and found[field.name].identity:
            return (
                f"its column {field.name} is GENERATED ALWAYS AS IDENTITY, which this variant's INSERT fills (SET "
                "GENERATED BY DEFAULT allows it)"
            )
    for name, column in found.items():
        if name not in names and column.needed:
            return f"its column {name} has no default and would stay empty"
    return None


def _rounds(kind: str, spark_type: DataType) -> bool:
    """Whether a column would round values of the Spark type without an error.

    Such a column has fewer digits after the point than the Spark type.
    """
    digits = _DIGITS.search(kind)
    if digits is None or not kind.startswith(("numeric", "timestamp")):
        return False
    scale = spark_type.scale if isinstance(spark_type, DecimalType) else 0
    return int(digits[1]) < (MICROSECONDS if kind.startswith("timestamp") else scale)


def definition(table: str, schema: StructType) -> sql.Composed:
    """Returns the statement that makes an output table for rows of this schema."""
    columns = sql.SQL(", ").join(
        sql.SQL("{} " + SQL_TYPES[field.dataType.typeName()][0]).format(sql.Identifier(field.name)) for field in schema
    )
    return sql.SQL("CREATE TABLE {table} ({columns})").format(table=sql.Identifier(table), columns=columns)


def identity(connection: psycopg.Connection, table: str) -> dict[str, str]:
    """Returns the identity of the table that search_path finds; empty if there is none.

    The parts are the server's system identifier, which a restore and a promoted standby keep, and the ids of database
    and table. A role that may not read the first gets the other two.
    """
    found = connection.execute(
        "SELECT to_regclass(%s)::oid, d.oid, has_function_privilege('pg_control_system()', 'EXECUTE') "
        "FROM pg_database d WHERE datname = current_database()",
        (sql.Identifier(table).as_string(connection),),
    ).fetchone()
    if found is None or found[0] is None:
        return {}
    parts = {"table": str(found[0]), "database": str(found[1])}
    if found[2]:
        row = connection.execute("SELECT system_identifier FROM pg_control_system()").fetchone()
        parts |= {} if row is None else {"system": str(row[0])}
    return parts


def columns_of(connection: psycopg.Connection, table: str) -> dict[str, Column]:
    """Returns the columns, by name, of the table that search_path finds.

    There are none if there is no table.
    """
    described = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = '', "
        "attgenerated <> '', attidentity = 'a' FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        (sql.Identifier(table).as_string(connection),),
    ).fetchall()
    return {name: Column(name, *more) for name, *more in described}


def make_tables(connection: psycopg.Connection) -> None:
    """Makes the ledger and the table of epochs, if no schema of search_path has them.

    `CREATE TABLE IF NOT EXISTS` looks in one schema only. A schema that came later, with the role's name, would get an
    empty ledger that hides the old one. The statement also needs the right to create, where all tables are there.

    Raises:
        RefusedStart: another table has the name, or a crash of the server would empty it.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING,))
        for table, key, columns in OWN_TABLES:
            defined = ", ".join(f"{name} {kind} NOT NULL" for name, kind in columns.items())
            form = sql.SQL(f"({defined}, PRIMARY KEY ({', '.join(key)}))")
            if not (found := columns_of(connection, table)):
                connection.execute(sql.SQL("CREATE TABLE {} {}").format(sql.Identifier(table), form))
                found = columns_of(connection, table)
            if {*columns} - {*found} == {"driver"}:  # the ledger of an older version
                connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN driver text NOT NULL DEFAULT ''").format(LEDGER))
                found = columns_of(connection, table)
            kinds = {name: found[name].kind for name in columns if name in found}
            keys = sql.SQL(", ").join(map(sql.Identifier, key))
            if kinds != columns or not has_unique_index(connection, sql.Identifier(table), key, keys):
                raise RefusedStart(
                    f"table {table!r} is not one that this sink made: it lacks the form {form.as_string()}. If "
                    "another program made it, rename it and start again: the start makes a new one. If it is this "
                    "sink's, restore its form."
                )
            refuse_unlogged(connection, table)


def refuse_unlogged(connection: psycopg.Connection, table: str) -> None:
    """Raises RefusedStart if a crash of the server empties the table or a partition of it.

    A partitioned table holds no rows itself, and PostgreSQL before 18 may mark it UNLOGGED for ever.
    """
    name = sql.Identifier(table).as_string(connection)
    unlogged = connection.execute(
        "SELECT id::regclass::text, id = to_regclass(%(name)s) FROM (SELECT to_regclass(%(name)s) UNION SELECT relid "
        "FROM pg_partition_tree(to_regclass(%(name)s))) AS each (id) JOIN pg_class c ON c.oid = id "
        "WHERE relpersistence <> 'p' AND relkind <> 'p'",
        {"name": name},
    ).fetchone()
    if unlogged is not None:
        part = "it" if unlogged[1] else f"its partition {unlogged[0]}"
        raise RefusedStart(
            f"table {table!r}: {part} is UNLOGGED, and so not kept when the server is killed. Nothing was written. "
            f"Run ALTER TABLE {unlogged[0]} SET LOGGED, then start again."
        )


def next_epoch(connection: psycopg.Connection, sink_id: str) -> int:
    """Takes the next epoch of a sink_id; tasks of older epochs stop at their next transaction."""
    statement = sql.SQL(
        "INSERT INTO {} AS known (sink_id, epoch) VALUES (%s, 1) "
        "ON CONFLICT (sink_id) DO UPDATE SET epoch = known.epoch + 1 RETURNING epoch"
    ).format(EPOCHS)
    row = connection.execute(statement, (sink_id,)).fetchone()
    assert row is not None, "INSERT .. RETURNING of one row gives one row"
    return int(row[0])


def holder(connection: psycopg.Connection, sink_id: str) -> Holder | None:
    """Returns the newest markers and who wrote them.

    The server counts epochs by itself, so there is no generation.
    """
    if "driver" not in columns_of(connection, "oncebench_ledger"):  # none yet, or of an older version
        return None
    return Holder.of(newest_marks(connection, sink_id), 0)


def newest_epoch(connection: psycopg.Connection, sink_id: str) -> int | None:
    """Returns the epoch of the newest driver of a sink_id."""
    row = connection.execute(sql.SQL("SELECT epoch FROM {} WHERE sink_id = %s").format(EPOCHS), (sink_id,)).fetchone()
    return None if row is None else int(row[0])


def put_in_ledger(connection: psycopg.Connection, sink_id: str, partition: int, mark: Mark) -> bool:
    """Adds a partition's marker in the open transaction; returns False if it exists already.

    Waits for a concurrent transaction that adds the same marker.
    """
    statement = sql.SQL(
        "WITH old AS (DELETE FROM {ledger} "
        "WHERE sink_id = %(sink)s AND partition = %(partition)s AND batch <= %(old)s) "
        "INSERT INTO {ledger} (sink_id, partition, batch, rows, digest, driver) "
        "VALUES (%(sink)s, %(partition)s, %(batch)s, %(rows)s, %(digest)s, %(driver)s) ON CONFLICT DO NOTHING"
    ).format(ledger=LEDGER)
    values = {"sink": sink_id, "partition": partition, "batch": mark.batch, "rows": mark.rows}
    more = {"digest": digest.to_text(mark.digest or 0), "driver": mark.driver, "old": mark.batch - KEEP_BATCHES}
    return connection.execute(statement, values | more).rowcount == 1


def in_ledger(connection: psycopg.Connection, sink_id: str, partition: int, batch: int) -> Mark | None:
    """Returns the marker of a partition's batch; None if the batch is not committed."""
    statement = sql.SQL(
        "SELECT rows, digest FROM {} WHERE sink_id = %s AND partition = %s AND batch = %s"
    ).format(LEDGER)  # fmt: skip
    row = connection.execute(statement, (sink_id, partition, batch)).fetchone()
    return None if row is None else Mark(batch, row[0], digest.from_text(row[1]))


def newest_marks(connection: psycopg.Connection, sink_id: str) -> dict[int, Mark]:
    """Returns the newest marker of each partition."""
    statement = sql.SQL(
        "SELECT DISTINCT ON (partition) partition, batch, rows, digest, driver FROM {} WHERE sink_id = %s "
        "ORDER BY partition, batch DESC"
    ).format(LEDGER)
    rows = connection.execute(statement, (sink_id,)).fetchall()
    return {p: Mark(batch, count, digest.from_text(text), driver) for p, batch, count, text, driver in rows}
