"""Rows whose columns the delivery cannot carry are refused at the start, by the column."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from oncebench.delivery.batch import deliverable
from oncebench.delivery.contract import Sink
from oncebench.delivery.errors import RefusedStart
from pipeline import rows as job_rows


def rows(*names: str) -> Any:
    """The part of a DataFrame that the check uses."""
    return SimpleNamespace(schema=StructType([StructField(name, StringType()) for name in names]))


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
    """Whatever the sink and the guarantee: Spark's own sinks get no hash and would lose the column too."""
    made = StructType([*job_rows.SCHEMA, StructField("__row_hash", StringType())])
    monkeypatch.setattr(job_rows, "SCHEMA", made)
    monkeypatch.setattr(job_rows, "ROW", tuple(made.names))
    with pytest.raises(RefusedStart, match=r"column '__row_hash' .* Give the column another name"):
        job_rows.check_query(SimpleNamespace(schema=made))  # type: ignore[arg-type]
