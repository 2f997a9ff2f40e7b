"""Formats of files: JSON lines and Parquet, written batch by batch, read as a whole.

Promise: a file is read back row by row, in the order of writing. Data that cannot be read (half a line, a file without
its end) are not skipped: they become one row that the audit does not expect and counts as corrupt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from oncebench.delivery import quarantine
from oncebench.delivery.digest import quoted
from oncebench.sinks.null_structs import without_hidden_nulls
from oncebench.sinks.records import row_as_json
from oncebench.sinks.types import EMPTY, INTERVALS, PLACES

# The column of a JSON line before it is written.
LINE = "line"
# The only field of a row that could not be read.
UNREADABLE = "unreadable"
# A task holds the rows of a row group in memory. Spark's record batches have 10,000 rows, about 1 MB. As row groups,
# they would be slow to scan: a reader opens each column of each group.
GROUP_BYTES = 32 * 1024 * 1024
# The content of a file: returns its rows without reading the file again.
Content = Callable[[], list[dict[str, Any]]]


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes:
        suffix: the end of a file's name.
        spark: Spark's name of the format.
        encode: converts the columns of the rows, in the JVM, to the columns that are written.
        write: writes the first rows and then the others; the file is complete when it returns.
        read: reads a file.
        no_types: the names of Spark's types that a file cannot hold as they are (`oncebench.sinks.types`).
    """

    suffix: str
    spark: str
    encode: Callable[[DataFrame], DataFrame]
    write: Callable[[BinaryIO, pa.RecordBatch, Iterator[pa.RecordBatch]], None]
    read: Callable[[Path], Content]
    no_types: Collection[str] = ()


def lines_of(rows: pa.RecordBatch) -> pa.Buffer:
    """Returns the column LINE as lines of a file, without a Python object per row."""
    lines = pc.binary_join_element_wise(rows.column(LINE), "\n", "")
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return pc.binary_join(whole, "")[0].as_buffer()


def _encode_json_lines(rows: DataFrame) -> DataFrame:
    """Returns each row as one JSON object; nulls are written.

    Spark's to_json replaces bytes that are not UTF-8. Such a row becomes a line that is not UTF-8 and names the column,
    and the task refuses it.
    """
    kept = [name for name in rows.columns if name == quarantine.COLUMN]
    fields = [field for field in rows.schema if field.name != quarantine.COLUMN]
    line = row_as_json([field.name for field in fields])
    texts = [(f.col(quoted(field.name)), field) for field in fields if _has_text(field.dataType)]
    checks = [
        (~_is_utf8(value, field.dataType), f.lit(f"column {field.name!r}: ".encode() + b"\xff").cast("string"))
        for value, field in texts
    ]
    if checks:  # one CASE, because nested ones would be deep with many columns
        line = reduce(lambda made, check: made.when(*check), checks[1:], f.when(*checks[0])).otherwise(line)
    return rows.select(line.alias(LINE), *kept)


def _has_text(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_text(field.dataType) for field in kind)
    if isinstance(kind, MapType):
        return _has_text(kind.keyType) or _has_text(kind.valueType)
    return _has_text(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, StringType)


def _is_utf8(value: Column, kind: DataType) -> Column:
    """Returns whether all texts of a value are UTF-8; true for a null."""
    if isinstance(kind, StringType):
        found = [f.is_valid_utf8(value)]
    elif isinstance(kind, ArrayType):
        found = [f.forall(value, lambda each: _is_utf8(each, kind.elementType))]
    elif isinstance(kind, MapType):
        parts = (f.map_keys(value), ArrayType(kind.keyType)), (f.map_values(value), ArrayType(kind.valueType))
        found = [_is_utf8(part, each) for part, each in parts if _has_text(each)]
    else:
        assert isinstance(kind, StructType)
        # Spark cannot name a field whose name another one has in other case; such texts are written as they are.
        alike = Counter(field.name.lower() for field in kind)
        texts = (field for field in kind if _has_text(field.dataType) and alike[field.name.lower()] == 1)
        found = [_is_utf8(value.getField(field.name), field.dataType) for field in texts]
    return f.coalesce(reduce(and_, found, f.lit(True)), f.lit(True))


def _as_columns(rows: DataFrame) -> DataFrame:
    return rows


def _write_json_lines(file: BinaryIO, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> None:
    file.write(lines_of(first))
    for rows in others:
        file.write(lines_of(rows))


def _read_json_lines(path: Path) -> Content:
    data = path.read_bytes()
    return lambda: [_row(line) for line in data.split(b"\n") if line]


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except ValueError:
        return _unreadable(line)
    return row if isinstance(row, dict) else _unreadable(line)


def _write_parquet(file: BinaryIO, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> None:
    with pq.ParquetWriter(file, first.schema) as writer:
        for group in _groups(chain((first,), others)):
            writer.write_table(pa.Table.from_batches(map(without_hidden_nulls, group)))


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yields the record batches of each row group. At most GROUP_BYTES and one batch are held."""
    held: list[pa.RecordBatch] = []
    size = 0
    for rows in batches:
        held.append(rows)
        size += rows.nbytes
        if size >= GROUP_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _read_parquet(path: Path) -> Content:
    try:
        with pq.ParquetFile(path) as file:
            table = file.read(use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # from the disk; pyarrow's own have no number
            raise
        return lambda: [_unreadable(path.name.encode())]
    return lambda: list(table.to_pylist())


def _unreadable(what: bytes) -> dict[str, Any]:
    return {UNREADABLE: what.decode("utf-8", "replace")}


# Spark's to_json fails at a geometry.
JSON_LINES = Format("jsonl", "json", _encode_json_lines, _write_json_lines, _read_json_lines, PLACES)
# Spark reads an interval back as a number, a variant, geometry or geography as a struct, and no time at all.
_NOT_IN_PARQUET = (*INTERVALS, *PLACES, "time", "variant", EMPTY)
PARQUET = Format("parquet", "parquet", _as_columns, _write_parquet, _read_parquet, _NOT_IN_PARQUET)
