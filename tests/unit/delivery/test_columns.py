"""Rows whose columns the delivery cannot carry are refused at the start, by the column."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from oncebench.delivery.batch import check_columns, deliverable
from oncebench.delivery.contract import Sink
from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.delta.sink import DeltaSink
from pipeline import rows as job_rows


def rows(*names: str) -> Any:
    """The part of a DataFrame that the check uses."""
    return SimpleNamespace(schema=StructType([StructField(name, StringType()) for name in names]))


# quarantine.TYPE
MARK = StructType(
    [
        StructField("reason", StringType()),
        StructField("source_partition", IntegerType()),
        StructField("source_offset", LongType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)


@pytest.mark.parametrize("name", ["Quarantine", "QUARANTINE"])
def test_a_quarantine_column_in_upper_case_is_refused(name: str) -> None:
    with pytest.raises(RefusedStart, match=f"column '{name}' .* Rename the column"):
        check_columns(StructType([StructField("id", StringType()), StructField(name, MARK)]))
    check_columns(StructType([StructField("id", StringType()), StructField("quarantine", MARK)]))


class Encoding(Sink):
    """Converts the rows to other columns."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def encode(self, _rows: Any) -> Any:
        return rows(*self._names)


@pytest.mark.parametrize("name", ["__row_hash", "__ROW_HASH"])
@pytest.mark.parametrize("asked", ["a query", "a sink's encode"])
def test_a_column_with_the_name_of_the_hash_is_refused(asked: str, name: str) -> None:
    of_query, of_sink = (("id", name), ("id",)) if asked == "a query" else (("id",), ("id", name))
    with pytest.raises(RefusedStart, match=f"column '{name}' .* would be lost. Give the column another name"):
        deliverable(rows(*of_query), Encoding(*of_sink))


def test_a_job_with_a_column_of_that_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal does not depend on the sink and the guarantee.

    Spark's own sinks get no hash and would lose the column too.
    """
    made = StructType([*job_rows.SCHEMA, StructField("__row_hash", StringType())])
    monkeypatch.setattr(job_rows, "SCHEMA", made)
    monkeypatch.setattr(job_rows, "ROW", tuple(made.names))
    with pytest.raises(RefusedStart, match=r"column '__row_hash' .* Give the column another name"):
        job_rows.check_query(SimpleNamespace(schema=made))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), "has no columns for the sink.* Select the columns"),
        (
            ("quarantine",),
            "has no columns for the sink.* Select the columns that the sink stores, besides 'quarantine'",
        ),
        (("a", "b", "A"), "columns 'a' and 'A' .* Rename one of them"),
        (("a", "a"), "columns 'a' and 'a' .* Rename one of them"),
        (("quarantine", "b", "Quarantine"), "columns 'quarantine' and 'Quarantine' .* Rename one of them"),
        (("a", "quarantine"), "column 'quarantine' .* is string; it must be struct<reason:string,.*Cast the column"),
    ],
)
def test_rows_that_no_sink_can_take_are_refused_before_they_are_encoded(names: tuple[str, ...], told: str) -> None:
    with pytest.raises(RefusedStart, match=told):
        deliverable(rows(*names), Encoding("line"))


def test_columns_of_other_names_pass() -> None:
    check_columns(rows("c.d", "a`b", "it's", "é", "", "a b", "{}", "Quarantine").schema)


@pytest.mark.parametrize("mark", " ,;{}()\n\t=")
def test_a_name_that_delta_refuses_is_refused_at_the_start(tmp_path: Path, mark: str) -> None:
    sink = DeltaSink(tmp_path / "table", "mine", 2, tmp_path / "checkpoint")
    with pytest.raises(RefusedStart, match=r"table: Delta's names have none of .*Give it another name"):
        sink.check_schema(rows("id", f"a{mark}b").schema)


def test_names_that_delta_takes_pass_and_so_does_a_table_that_has_the_column(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "table", "mine", 2, tmp_path / "checkpoint")
    sink.check_schema(rows("id", "c.d", "a`b", "").schema)
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    sink.check_schema(rows("id", "a b").schema)
