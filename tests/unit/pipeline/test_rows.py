"""The columns of the job's rows; a query with other columns is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from oncebench.delivery import quarantine
from oncebench.delivery.contract import COLUMNS, RECORDS
from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.postgres import tables
from oncebench.sinks.postgres.starting import keys
from oncebench.sinks.records import records_schema_error
from pipeline.rows import ID, KEY, ROW, SCHEMA, check_query, schema_for

REJECTED = StructType(
    [
        StructField("reason", StringType()),
        StructField("source_partition", IntegerType()),
        StructField("source_offset", LongType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)


def query(*fields: StructField) -> Any:
    """The part of a DataFrame that the check uses."""
    return SimpleNamespace(schema=StructType(list(fields)))


def test_key_and_row_id_are_columns_of_the_row() -> None:
    assert {KEY, *ID} <= set(ROW)


def test_sinks_of_records_get_key_and_value() -> None:
    assert schema_for(COLUMNS) == SCHEMA
    assert records_schema_error(schema_for(RECORDS)) is None


def test_a_query_with_the_rows_columns_passes() -> None:
    check_query(query(*SCHEMA.fields))
    check_query(query(*SCHEMA.fields, StructField(quarantine.COLUMN, REJECTED)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([each for each in SCHEMA if each.name != "j"], "'j' .* is missing; .*rows.py has int"),
        ([each if each.name != "j" else StructField("j", LongType()) for each in SCHEMA], "'j' .* is bigint; .* int"),
        ([*SCHEMA, StructField("when", LongType())], "has a column 'when'"),
        ([*SCHEMA, StructField(quarantine.COLUMN, StringType())], "'quarantine' .* is string; it must be struct"),
    ],
    ids=["missing", "other type", "unknown", "quarantine"],
)
def test_a_query_with_other_columns_is_refused_by_column(fields: list[StructField], message: str) -> None:
    with pytest.raises(RefusedStart, match=message):
        check_query(query(*fields))


def test_postgresqls_table_and_row_id_come_from_the_columns() -> None:
    made = tables.definition("t", SCHEMA).as_string(None)
    for name, kind in zip(ROW, ("text", "integer", "integer", "bigint", "bigint", "bigint"), strict=True):
        assert f'"{name}" {kind}' in made
    assert keys.row_id(ID, SCHEMA).as_string(None) == (
        """sha256(decode(replace("session_key", E'\\\\', E'\\\\\\\\'), 'escape')), "j\""""
    )
