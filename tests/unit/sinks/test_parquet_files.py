"""Parquet files as tasks write them: all rows of Spark's types, in useful row groups."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.files import formats
from oncebench.sinks.files.formats import JSON_LINES, PARQUET, Format
from oncebench.sinks.files.sink import SUPPORTS, FileSink


def written(*batches: pa.RecordBatch) -> pq.ParquetFile:
    file = io.BytesIO()
    first, *others = batches
    PARQUET.write(file, first, iter(others))
    return pq.ParquetFile(io.BytesIO(file.getvalue()))


def never_null(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


INNER = pa.struct(
    [
        never_null("text", pa.string()),
        never_null("flag", pa.bool_()),
        never_null("list", pa.list_(never_null("element", pa.int32()))),
        never_null("map", pa.map_(pa.string(), never_null("value", pa.int64()))),
        never_null("struct", pa.struct([never_null("x", pa.int64()), pa.field("y", pa.int64())])),
    ]
)
SOME = {"text": "a", "flag": True, "list": [1, 2], "map": [("k", 5)], "struct": {"x": 1, "y": None}}
OTHER = {"text": "", "flag": False, "list": [], "map": [], "struct": {"x": 2, "y": 3}}
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (INNER, [SOME, None, OTHER, None, SOME]),
    (pa.struct([pa.field("inner", INNER)]), [{"inner": SOME}, {"inner": None}, None]),
    (pa.list_(pa.field("element", INNER)), [[SOME, None], None, [], [None, OTHER]]),
    (pa.map_(pa.string(), pa.field("value", INNER)), [[("k", SOME), ("l", None)], None, [], [("m", None)]]),
]


def as_spark(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the values as Spark's ArrowWriter gives them.

    The fields of a null struct are null, whatever their type says.
    """
    if pa.types.is_struct(kind):
        inner = [values.field(at) for at in range(kind.num_fields)]
        shown = [pc.if_else(values.is_valid(), each, pa.nulls(len(values), each.type)) for each in inner]
        made = [as_spark(each, field.type) for each, field in zip(shown, kind, strict=True)]
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        made = [values.keys, as_spark(values.items, kind.item_type)]
        inner = [pa.StructArray.from_arrays(made, fields=[kind.key_field, kind.item_field])]
    elif pa.types.is_list(kind):
        inner = [as_spark(values.values, kind.value_type)]
    else:
        return values
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], -1, values.offset, inner)


def nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", nullable(kind.item_type)))
    return pa.list_(pa.field("element", nullable(kind.value_type))) if pa.types.is_list(kind) else kind


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind)[:20] for kind, _ in VALUES])
@pytest.mark.parametrize("part", [slice(None), slice(1, 3)])
def test_a_null_struct_may_have_fields_that_are_never_null(kind: pa.DataType, values: list[Any], part: slice) -> None:
    column = as_spark(pa.array(values, nullable(kind)), kind)[part]
    rows = pa.RecordBatch.from_arrays([column], schema=pa.schema([pa.field("refund", kind)]))
    with written(rows) as file:
        assert file.schema_arrow.field("refund").type == kind, "readers get the types that older files have"
        assert file.read().column("refund").to_pylist() == values[part]


def test_rows_of_many_record_batches_are_one_row_group() -> None:
    with written(*[pa.RecordBatch.from_pydict({"at": list(range(100))})] * 30) as file:
        assert file.num_row_groups == 1
        assert file.read().column("at").to_pylist() == list(range(100)) * 30


def test_a_task_holds_the_rows_of_one_row_group_only(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_pydict({"at": list(range(100))})
    monkeypatch.setattr(formats, "GROUP_BYTES", 3 * batch.nbytes)
    with written(*[batch] * 8) as file:
        assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [300, 300, 200]


SINCE = t.StructField("since", t.DayTimeIntervalType())


@pytest.mark.parametrize("kind", [SINCE.dataType, t.YearMonthIntervalType(), t.TimeType(), t.VariantType()], ids=str)
@pytest.mark.parametrize("within", [lambda kind: kind, t.ArrayType, lambda kind: t.StructType().add("x", kind)])
def test_a_type_that_readers_would_not_get_back_is_refused_by_name(
    tmp_path: Path, kind: t.DataType, within: Callable[[t.DataType], t.DataType]
) -> None:
    columns = t.StructType([t.StructField("since", within(kind))])
    with pytest.raises(
        RefusedStart, match=f"column 'since' is .* a parquet file cannot hold {re.escape(kind.simpleString())}"
    ):
        started(tmp_path / "ours", PARQUET, columns, "two-phase")
    started(tmp_path / "spark", PARQUET, columns, "native")
    started(tmp_path / "lines", JSON_LINES, columns, "two-phase")


def test_json_lines_refuse_the_types_at_which_to_json_fails(tmp_path: Path) -> None:
    columns = t.StructType([t.StructField("place", t.ArrayType(t.GeometryType(4326)))])
    with pytest.raises(RefusedStart, match=r"column .place. is array<.*a jsonl file cannot hold geometry"):
        started(tmp_path / "ours", JSON_LINES, columns, "two-phase")


def started(folder: Path, form: Format, columns: t.StructType, variant: str) -> None:
    made = FileSink(form, str(folder), "s", 2)
    made.check_schema(columns)
    (support,) = [each for each in SUPPORTS if each.variant == variant]
    made.start(support, 1, [])
