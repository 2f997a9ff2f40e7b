"""The columns that a Delta table and its sink take, and columns added to an open batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake import Schema as DeltaSchema
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DateType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimeType,
    VariantType,
)

from oncebench.delivery.contract import Support
from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.delta.log import column_difference, columns_of
from oncebench.sinks.delta.sink import DeltaSink
from pipeline import rows as job_rows
from tests.unit.sinks.test_delta import IDEMPOTENT, append, finish, own_id, rows, sink


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (rows("a").drop_columns(["j"]), "'j' is missing"),
        (rows("a").set_column(3, "total", pa.array(["1", "2", "3"])), "'total' is 'string'"),
        (
            rows("a").append_column(pa.field("when", pa.int64(), nullable=False), pa.array([1, 2, 3])),
            "'when' takes no null and is not a column of the rows",
        ),
    ],
)
def test_a_table_with_other_columns_is_refused_by_column(tmp_path: Path, content: pa.Table, named: str) -> None:
    append(tmp_path / "table", content)
    with pytest.raises(RefusedStart, match=named):
        sink(tmp_path).start(Support("at-least-once", "acknowledged", ""), 1, ())


def test_a_partitioned_table_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), rows("a"), partition_by=["j"])
    assert "partitioned by column 'j'" in str(column_difference(tmp_path / "table", columns_of(job_rows.SCHEMA)))


def test_a_column_may_be_added_while_a_committed_batch_is_open(tmp_path: Path) -> None:
    """The earlier version finishes the batch; the next one writes the column."""
    table, column = tmp_path / "table", StructField("channel", StringType())
    append(table, rows("a"), own_id(tmp_path), 0)
    DeltaTable(str(table)).alter.add_columns(DeltaSchema.from_arrow(pa.schema({"channel": pa.string()})).fields)
    newer = sink(tmp_path)
    newer.check_schema(StructType([*job_rows.SCHEMA, column]))
    with pytest.raises(
        RefusedStart, match=r"batch 0 is open, .* have no column 'channel'\. Nothing .* Start the job's earlier version"
    ):
        newer.start(IDEMPOTENT, 2, ())
    earlier = sink(tmp_path)
    earlier.start(IDEMPOTENT, 3, ())
    assert earlier.newest_batch() == 0
    finish(tmp_path, 0)
    newer.start(IDEMPOTENT, 4, ())


def test_a_table_that_forgets_batches_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_deltalake(
        str(tmp_path / "table"), rows("a"), configuration={"delta.setTransactionRetentionDuration": "interval 7 days"}
    )
    sink(tmp_path).start(IDEMPOTENT, 1, ())
    assert "has delta.setTransactionRetentionDuration = interval 7 days, and forgets the newest batch" in caplog.text


SINCE = StructField("since", DayTimeIntervalType())


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (SINCE, "'since' is interval day to second, and a Delta table cannot hold interval day to second"),
        (StructField("all", ArrayType(StructType([SINCE]))), "'all' is array<.*cannot hold interval"),
        (StructField("at", TimeType()), r"'at' is time\(6\)"),
        (StructField("none", MapType(StringType(), StructType())), "'none' is map<.*cannot hold struct<>"),
        (StructField("a b", StringType()), "column or field 'a b' cannot be stored"),
        (
            StructField("in", MapType(StringType(), StructType([StructField("x=y", StringType())]))),
            "field 'x=y' cannot",
        ),
    ],
)
def test_a_column_that_delta_refuses_in_every_batch_is_refused_at_the_start(
    tmp_path: Path, column: StructField, named: str
) -> None:
    made = DeltaSink(tmp_path / "table", "sink", 2, tmp_path / "checkpoint")
    with pytest.raises(RefusedStart, match=named):
        made.check_schema(StructType([column, StructField("quarantine", CalendarIntervalType())]))


def test_names_and_types_that_delta_takes_are_not_refused(tmp_path: Path) -> None:
    made = DeltaSink(tmp_path / "table", "sink", 2, tmp_path / "checkpoint")
    inner = StructType([StructField("a.b`", VariantType()), StructField("\u00fc-1", DateType())])
    made.check_schema(StructType([StructField("x", ArrayType(inner)), StructField("quarantine", TimeType())]))
