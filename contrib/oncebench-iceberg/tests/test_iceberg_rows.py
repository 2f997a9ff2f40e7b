"""Data files as tasks write them, and the committed reader."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_tables import Tables, marker
from oncebench_iceberg.catalogs.local import LocalPlace
from oncebench_iceberg.columns import iceberg_schema
from oncebench_iceberg.files import _for_tasks, _unpacked, _WriteFiles, access_of
from oncebench_iceberg.reader import SnapshotFollower
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyspark.sql import types as t

from oncebench.delivery import digest
from oncebench.delivery.errors import DeliveryFailed, PermanentFailure, ReadError

KINDS = t.StructType(
    [
        t.StructField("key", t.StringType()),
        t.StructField("a.b`c", t.ByteType()),
        t.StructField("at", t.TimestampType()),
        t.StructField("day", t.DateType()),
        t.StructField("price", t.DecimalType(9, 2)),
        t.StructField("raw", t.BinaryType()),
        t.StructField("more", t.MapType(t.StringType(), t.ArrayType(t.LongType()))),
        t.StructField("in", t.StructType([t.StructField("x", t.DoubleType())])),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "key": f"k{number}",
        "a.b`c": number,
        "at": datetime(2024, 2, 28 + number, 23, 59, tzinfo=UTC),
        "day": date(1969, 12, 31),
        "price": Decimal("-0.01"),
        "raw": b"\x00\xff",
        "more": [("a", [1, None])],
        "in": {"x": 0.5},
    }
    for number in (0, 1)
] + [dict.fromkeys(KINDS.names)]


def written(tables: Tables, rows: list[dict[str, Any]], kinds: t.StructType = KINDS) -> list[DataFile]:
    """The data files of one task."""
    from pyspark.sql.pandas.types import to_arrow_schema

    table = tables.load().metadata
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(kinds, timezone="Europe/Berlin"))
    hashed = batch.append_column(digest.HASH, pa.array([3] * len(rows), pa.int64()))
    (result,) = _WriteFiles(0, _for_tasks(table))(iter([hashed]))
    (found,) = result.to_pylist()
    assert (found["rows"], found["digest"]) == (len(rows), digest.to_text(3 * len(rows)))
    return _unpacked(found["files"], table.default_spec_id)


def made(folder: Path, kinds: t.StructType = KINDS, **partitions: Any) -> Tables:
    tables = Tables(LocalPlace(folder, "shop.orders"))
    table = tables.catalog().make(iceberg_schema(kinds))
    if partitions:
        with table.update_spec() as update:
            for name, transform in partitions.items():
                update.add_field(name, transform)
    return tables


@pytest.mark.parametrize(
    "partitions",
    [{}, {"key": IdentityTransform()}, {"key": BucketTransform(4)}, {"at": DayTransform()}, {"day": DayTransform()}],
)
def test_every_value_is_read_back_by_others(tmp_path: Path, partitions: Any) -> None:
    tables = made(tmp_path, **partitions)
    tables.started("one", 1).append(written(tables, ROWS), marker(0))
    found = tables.load().scan().to_arrow().sort_by("key").to_pylist()
    assert found == ROWS
    assert len(list(tables.load().scan(row_filter="key = 'k1'").plan_files())) == 1
    duck = duckdb.sql(f"SELECT count(*), sum(price) FROM read_parquet('{tmp_path}/**/*.parquet')").fetchall()
    assert duck == [(3, Decimal("-0.02"))]


ITEM = t.StructType([t.StructField("x", t.LongType())])
NESTED = t.StructType(
    [
        t.StructField("key", t.StringType()),
        t.StructField("items", t.ArrayType(ITEM)),
        t.StructField("byName", t.MapType(t.StringType(), ITEM)),
        t.StructField("parts", t.ArrayType(t.ArrayType(ITEM))),
    ]
)


@pytest.mark.parametrize("partitions", [{}, {"key": IdentityTransform()}])
def test_a_null_list_of_structs_does_not_become_an_empty_one(tmp_path: Path, partitions: Any) -> None:
    some = {"items": [{"x": 1}, None], "byName": [("a", {"x": 2}), ("b", None)], "parts": [None, [], [{"x": 3}]]}
    rows: list[dict[str, Any]] = [
        {"key": "a", "items": None, "byName": None, "parts": None},
        {"key": "b", "items": [], "byName": [], "parts": []},
        {"key": "c", **some},
        {"key": "d", "items": None, "byName": None, "parts": [None]},
    ]
    files = written(made(tmp_path, NESTED, **partitions), rows, NESTED)
    read = pa.concat_tables(pq.ParquetFile(file.file_path.removeprefix("file://")).read() for file in files)
    assert read.sort_by("key").to_pylist() == rows


def test_a_null_struct_may_have_fields_that_are_never_null(tmp_path: Path) -> None:
    """Spark sets such a field null where its struct is null."""
    inner = t.StructType([t.StructField("reason", t.StringType(), nullable=False)])
    tables = made(tmp_path, t.StructType([t.StructField("refund", inner)]))
    kind = pa.struct([pa.field("reason", pa.string(), nullable=False)])
    refund = pa.StructArray.from_arrays([pa.array(["late", None])], fields=list(kind), mask=pa.array([False, True]))
    rows = pa.RecordBatch.from_arrays([refund, pa.array([1, 2])], names=["refund", digest.HASH])
    (result,) = _WriteFiles(0, _for_tasks(tables.load().metadata))(iter([rows]))
    files = _unpacked(result.column("files")[0].as_py(), 0)
    tables.started("one", 1).append(files, marker(0))
    found = tables.load().scan().to_arrow().column("refund").to_pylist()
    assert found == [{"reason": "late"}, None]


def test_files_with_more_rows_than_the_task_fail_the_batch(tmp_path: Path) -> None:
    kinds = t.StructType([t.StructField("x", t.DoubleType())])
    tables = made(tmp_path, kinds, x=IdentityTransform())
    with pytest.raises(PermanentFailure, match="have 4 rows, and the task has 2"):
        written(tables, [{"x": 0.0}, {"x": -0.0}], kinds)


def test_duckdb_reads_the_files_of_the_newest_snapshot(tables: Tables) -> None:
    driver = tables.started("one", 1)
    for batch in range(3):
        driver.append(tables.files(f"b{batch}", "x"), marker(batch))
    tables.files("orphan")
    files = [task.file.file_path for task in tables.load().scan().plan_files()]
    found = duckdb.sql(f"SELECT key FROM read_parquet({files}) ORDER BY key").fetchall()
    assert [key for (key,) in found] == tables.keys() == ["b0", "b1", "b2", "x", "x", "x"]


def test_the_script_for_pyiceberg_only_reads(tables: Tables) -> None:
    script = Path(__file__).parents[1] / "readers" / "by_pyiceberg.py"
    tables.started("one", 1).append(tables.files("b", "a"), marker(0))

    def read(catalog: Path, table: str = "shop.orders") -> tuple[int, str, str]:
        ended = subprocess.run(
            [sys.executable, script, catalog, table], capture_output=True, text=True, timeout=120, check=False
        )
        return ended.returncode, ended.stdout, ended.stderr

    assert read(tables.place.file) == (0, '{"key": "a", "n": 1}\n{"key": "b", "n": 0}\n', "")
    other = tables.place.warehouse / "other.sqlite"
    code, _, errors = read(other)
    assert (code, errors.count("\n"), other.exists()) == (1, 1, False)
    other.write_text("no database")
    code, _, errors = read(other)
    assert (code, errors.count("\n")) == (1, 1), errors
    code, _, errors = read(tables.place.file, "shop.lost")
    assert (code, errors.count("\n")) == (1, 1), errors


SCRIPTS = Path(__file__).parents[1]


@pytest.mark.parametrize("script", [*SCRIPTS.glob("readers/by_*.py"), *SCRIPTS.glob("maintenance/*.py")], ids=str)
def test_a_script_without_arguments_prints_its_usage(script: Path) -> None:
    text = script.read_text()
    arguments = re.search(r"def main\((.*)\) -> None", text)
    usage = re.search(
        rf'if len\(sys\.argv\) != (\d):\n        sys\.exit\("usage: {script.name}((?: [A-Z_.]+)+)"\)', text
    )
    assert arguments is not None
    assert usage is not None
    assert arguments[1].count(":") == usage[2].count(" ") == int(usage[1]) - 1


def test_a_data_file_has_statistics(tmp_path: Path) -> None:
    (file,) = written(made(tmp_path), ROWS)
    assert file.record_count == 3
    assert file.null_value_counts[1] == 1
    assert (file.lower_bounds[1], file.upper_bounds[1]) == (b"k0", b"k1")
    assert pq.read_metadata(file.file_path).num_rows == 3


def test_tasks_get_keys_of_files_and_no_token() -> None:
    wanted = {"s3.secret-access-key": "K1", "s3.region": "x", "hdfs.user": "etl"}
    access = access_of(load_file_io({"token": "T1", "uri": "http://catalog", **wanted}, "/data"))
    assert access == wanted
    assert "K1" not in repr(_WriteFiles(0, "", access))


def test_a_task_without_rows_writes_no_file(tmp_path: Path) -> None:
    tables = made(tmp_path)
    assert written(tables, []) == []
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_folder_that_is_no_folder_fails_the_batch(tmp_path: Path) -> None:
    tables = made(tmp_path)
    Path(tables.load().location(), "data").write_text("")
    with pytest.raises(DeliveryFailed, match="batch 0, partition 0: cannot write data files below"):
        written(tables, ROWS)


def keys_of(follower: SnapshotFollower) -> list[str]:
    return [orjson.loads(value or b"")["key"] for value in follower.fresh().value]


def test_a_row_that_fits_no_partition_is_named(tmp_path: Path) -> None:
    kinds = t.StructType([t.StructField("key", t.StringType()), t.StructField("_partition_key", t.StringType())])
    tables = made(tmp_path / "long", t.StructType(kinds.fields[:1]), key=IdentityTransform())
    with pytest.raises(PermanentFailure, match=r"the value of an identity partition .* by bucket, with"):
        written(tables, [{"key": "x" * 300}], t.StructType(kinds.fields[:1]))
    tables = made(tmp_path / "taken", kinds, key=IdentityTransform())
    with pytest.raises(PermanentFailure, match=r"the rows cannot be stored in .*_partition_key"):
        written(tables, [{"key": "a", "_partition_key": "b"}], kinds)


def test_a_reader_gets_each_snapshot_once_and_whole(tables: Tables) -> None:
    follower = SnapshotFollower(tables.place, "key")
    assert keys_of(follower) == []
    driver = tables.started("one", 1)
    driver.append([*tables.files("a", "b"), *tables.files("c")], marker(0))
    assert sorted(keys_of(follower)) == ["a", "b", "c"]
    assert keys_of(follower) == []
    driver.append(tables.files("d"), marker(1))
    driver.append(tables.files("e"), marker(2))
    assert keys_of(follower) == ["d", "e"]
    late = SnapshotFollower(tables.place, "key")
    assert sorted(keys_of(late)) == ["a", "b", "c", "d", "e"]
    assert keys_of(late) == []


def test_two_readers_see_a_row_at_the_same_place(tables: Tables) -> None:
    tables.started("one", 1).append(tables.files("a", "b"), marker(0))
    first, second = (SnapshotFollower(tables.place, "key").fresh() for _ in range(2))
    assert (first.partition, first.offset, first.append_ms) == (second.partition, second.offset, second.append_ms)


class Rewrite(_OverwriteFiles):
    """Other files with the same rows, as a compaction makes them; pyiceberg has none of its own."""

    def _summary(self, snapshot_properties: Any = None) -> Summary:
        return Summary(Operation.REPLACE, **super()._summary(snapshot_properties or {}).additional_properties)


def test_a_compaction_shows_no_row_again(tables: Tables) -> None:
    driver, follower = tables.started("one", 1), SnapshotFollower(tables.place, "key")
    driver.append(tables.files("a"), marker(0))
    assert keys_of(follower) == ["a"]
    transaction = tables.load().transaction()
    rewrite = Rewrite(Operation.OVERWRITE, transaction, tables.load().io)
    for task in tables.load().scan().plan_files():
        rewrite.delete_data_file(task.file)
    rewrite.append_data_file(tables.files("a")[0])
    rewrite.commit()
    transaction.commit_transaction()
    driver.append(tables.files("b"), marker(1))
    assert keys_of(follower) == ["b"]
    assert tables.keys() == ["a", "b"]


def test_a_reader_that_missed_a_snapshot_says_so(tables: Tables) -> None:
    driver, follower = tables.started("one", 1), SnapshotFollower(tables.place, "key")
    keys_of(follower)
    for batch in (0, 1):
        driver.append(tables.files(f"b{batch}"), marker(batch))
    *older, _ = (snapshot.snapshot_id for snapshot in tables.load().metadata.snapshots)
    tables.load().maintenance.expire_snapshots().by_ids(older).commit()
    with pytest.raises(ReadError, match="expired before this reader has read them"):
        follower.fresh()


def test_orphan_files_are_reported_and_not_read(tables: Tables) -> None:
    orphan = Path(tables.files("dead")[0].file_path)
    tables.started("one", 1).append(tables.files("a"), marker(0))
    follower = SnapshotFollower(tables.place, "key")
    assert keys_of(follower) == ["a"]
    assert follower.leftovers() == [f"orphan file {orphan.name}"]
