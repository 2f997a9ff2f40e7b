"""Writes the rows of a task as Parquet data files, and describes them for the driver.

Promise: a file is closed and has statistics per column before its description leaves the task. No reader sees it before
the driver commits it.

What can go wrong: the disk is full or not writable, or the object store fails (`DeliveryFailed`); the table's column
cannot store a value, for example a null in a required field (`PermanentFailure`). The rows of a task are held in memory
as Arrow columns until they are written: pyiceberg needs them all to find a task's partitions.
"""

from __future__ import annotations

import base64
import errno
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.io.pyarrow as pyiceberg_arrow
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import ListType, MapType
from pyspark.sql import DataFrame

from oncebench.delivery import digest
from oncebench.delivery.batch import data_columns, map_in_arrow
from oncebench.delivery.errors import PermanentFailure
from oncebench.delivery.failures.cause import failure, permanent
from oncebench.delivery.tasks import partition_of_first_attempt
from oncebench.sinks.null_structs import without_hidden_nulls
from oncebench_iceberg.catalogs.objects import of_file_error
from oncebench_iceberg.columns import arrow_schema

_RESULT = "rows long, digest string, files string"
# Tables that a worker process keeps parsed: more than the sinks of one application.
_TABLES = 8
# How pyiceberg names the settings of file systems. Those of the catalog itself, as its token, stay in the driver.
_ACCESS = ("s3.", "gcs.", "adls.", "hf.", "hdfs.", "client.", "py-io-impl")
_LONG_VALUE = permanent(
    "a name is too long, and the value of an identity partition is in a folder's name",
    "Shorten that value in the query, or take a table that is partitioned by bucket, with a new checkpoint and sink_id",
)


@dataclass(frozen=True)
class Staged:
    """Data files of a batch that no snapshot names yet.

    Attributes:
        files: their descriptions, with statistics.
        rows: number of their rows.
        digest: of these rows.
    """

    files: Sequence[DataFile]
    rows: int
    digest: int


def access_of(io: FileIO) -> dict[str, str]:
    """Returns the settings of a table's files that a task needs, keys and tokens too.

    They are empty for local files.
    """
    return {name: text for name, text in io.properties.items() if name.startswith(_ACCESS) and isinstance(text, str)}


def stage(rows: DataFrame, batch: int, table: TableMetadata, access: Mapping[str, str]) -> Staged:
    """Lets the tasks write a batch's rows as data files of a table.

    Args:
        rows: as a `BatchWriter` gets them.
        batch: the batch id.
        table: the state of the table at the start.
        access: see `access_of`.
    """
    hashed = digest.with_hash(rows, data_columns(rows.schema))
    task = _WriteFiles(batch, _for_tasks(table), access).__call__
    found = map_in_arrow(hashed, task, _RESULT).collect()
    total = 0
    for row in found:
        total = digest.add(total, digest.from_text(row["digest"]) or 0)
    files = [file for row in found for file in _unpacked(row["files"], table.default_spec_id)]
    return Staged(files, sum(row["rows"] for row in found), total)


def _for_tasks(table: TableMetadata) -> str:
    """Returns the table without its snapshots: no task reads them, and there may be thousands."""
    small: dict[str, Any] = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "statistics": []}
    return str(table.model_copy(update={**small, "current_snapshot_id": None}).model_dump_json())


@lru_cache(maxsize=_TABLES)
def _table(text: str) -> TableMetadata:
    """Returns the table of a worker process, which runs the tasks of many batches."""
    return TableMetadataUtil.parse_raw(text)


@dataclass(frozen=True)
class _WriteFiles:
    """Writes one partition of a batch; called in a worker."""

    batch: int
    table: str
    access: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, table = partition_of_first_attempt(self.batch), _table(self.table)
        taken: list[pa.RecordBatch] = []
        total = 0
        for batch in batches:
            rows, hashes = digest.without_hash(batch)
            total = digest.add(total, digest.digest(hashes))
            taken.append(without_hidden_nulls(rows))
        files = self._write(table, pa.Table.from_batches(taken), partition) if any(map(len, taken)) else []
        yield pa.RecordBatch.from_pylist(
            [{"rows": sum(map(len, taken)), "digest": digest.to_text(total), "files": _packed(files)}]
        )

    def _write(self, table: TableMetadata, rows: pa.Table, partition: int) -> list[DataFile]:
        target = pa.schema([arrow_schema(table.schema()).field(name) for name in rows.column_names])
        try:
            io = load_file_io(dict(self.access), table.location)
            with _nulls_kept():
                files = list(pyiceberg_arrow._dataframe_to_data_files(table, rows.cast(target), io))
        except OSError as error:
            text = f"batch {self.batch}, partition {partition}: cannot write data files below {table.location}"
            cause = _LONG_VALUE if error.errno == errno.ENAMETOOLONG else of_file_error(error)
            raise failure(cause, f"{text}: {error.strerror or error}") from error
        except (pa.ArrowException, ValueError, KeyError) as error:  # KeyError: a column has a name that pyiceberg takes
            raise PermanentFailure(
                f"batch {self.batch}, partition {partition}: the rows cannot be stored in {table.location} ({error}). "
                "Correct or reject such rows in the query, or correct the table's property. Then start again."
            ) from error
        stored = sum(file.record_count for file in files)
        if stored != len(rows):
            raise PermanentFailure(
                f"batch {self.batch}, partition {partition}: the data files below {table.location} have {stored} rows, "
                f"and the task has {len(rows)}. No reader sees these files. Take a table with other partition fields, "
                "and a new checkpoint and sink_id."
            )
        return files


class _NullsKept(pyiceberg_arrow.ArrowProjectionVisitor):  # type: ignore[misc]  # mypy sees no types of pyarrow
    """Keeps nulls in lists and maps of structs.

    pyiceberg builds such a list or map anew, and a null becomes an empty one (apache/iceberg-python #3833).
    """

    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        return _with_nulls_of(list_array, super().list(list_type, list_array, value_array))

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        return _with_nulls_of(map_array, super().map(map_type, map_array, key_result, value_result))


def _with_nulls_of(given: pa.Array | None, made: pa.Array | None) -> pa.Array | None:
    if given is None or made is None or given.null_count == made.null_count:
        return made
    # the cast brings the ids of the fields back, which `if_else` leaves out
    return pc.if_else(given.is_valid(), made, pa.nulls(len(made), made.type)).cast(made.type)


_LOCK = Lock()


@contextmanager
def _nulls_kept() -> Iterator[None]:
    """Lets pyiceberg write with `_NullsKept`.

    A worker process runs one task at a time, so the lock costs nothing.
    """
    with _LOCK:
        usual = pyiceberg_arrow.ArrowProjectionVisitor
        pyiceberg_arrow.ArrowProjectionVisitor = _NullsKept
        try:
            yield
        finally:
            pyiceberg_arrow.ArrowProjectionVisitor = usual


def _packed(files: Sequence[DataFile]) -> str:
    return base64.b64encode(pickle.dumps(list(files))).decode()


def _unpacked(text: str, spec_id: int) -> list[DataFile]:
    # As Spark does: driver and workers of one job exchange pickles.
    files: list[DataFile] = pickle.loads(base64.b64decode(text))  # noqa: S301
    for file in files:
        file.spec_id = spec_id  # no part of a data file's own fields
    return files


class WarmUp:
    """Makes a worker ready: the import of pyiceberg takes a second."""

    def write(self, _task: Any, _rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        started = time.perf_counter()
        import pyiceberg.io.pyarrow  # noqa: PLC0415

        assert pyiceberg.io.pyarrow
        return {}, {"import": (time.perf_counter() - started) * 1000}
