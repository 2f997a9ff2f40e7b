"""What a start of the Iceberg sink checks, and what it finds in a table."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from iceberg_tables import EXACTLY_ONCE, SCHEMA, Tables, marker
from oncebench_iceberg.catalogs import local
from oncebench_iceberg.catalogs.local import LocalPlace
from oncebench_iceberg.catalogs.place import place_of
from oncebench_iceberg.catalogs.rest import RestPlace
from oncebench_iceberg.columns import iceberg_schema, unsuitable
from oncebench_iceberg.commit import Unanswered
from oncebench_iceberg.driver import _cause
from oncebench_iceberg.job import IcebergTable
from oncebench_iceberg.marker import Keys, effective, marks_of
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as t

from oncebench.delivery.contract import WHOLE_BATCH
from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.delivery.failures.cause import UNLESS_THERE

KEYS = Keys("job")


def refused(tables: Tables, match: str, schema: t.StructType = SCHEMA) -> None:
    before = tables.load().metadata
    with pytest.raises(RefusedStart, match=match):
        tables.sink(schema=schema).start(EXACTLY_ONCE, 1, [])
    assert tables.load().metadata == before


def two_batches(tables: Tables) -> list[int]:
    """Ids of the snapshots: the start's, and each batch's."""
    driver = tables.started("one", 1)
    for batch in (0, 1):
        driver.append(tables.files(f"b{batch}"), marker(batch))
    return [snapshot.snapshot_id for snapshot in tables.load().metadata.snapshots]


def roll_back(tables: Tables, snapshot: int) -> None:
    tables.load().manage_snapshots().rollback_to_snapshot(snapshot).commit()


def expire(tables: Tables, *snapshots: int) -> None:
    expiry: ExpireSnapshots = tables.load().maintenance.expire_snapshots()
    expiry.by_ids(list(snapshots)).commit()


def newest(tables: Tables) -> int | None:
    found = effective(tables.load().metadata, KEYS)
    return None if found is None else found.batch


def test_a_start_makes_a_missing_table(tmp_path: Path) -> None:
    tables = Tables(LocalPlace(tmp_path / "new" / "warehouse", "a.b.rows"))
    sink = tables.sink()
    assert sink.identity() == {}
    assert sink.holder() is None
    assert not tables.place.warehouse.exists()
    sink.start(EXACTLY_ONCE, 1, [])
    assert sink.identity() == {"table": str(tables.load().metadata.table_uuid)}
    assert sink.newest_batch() == -1
    sink.close()


def test_a_table_made_again_has_another_identity(tables: Tables) -> None:
    sink = tables.sink()
    before = sink.identity()
    tables.catalog()._catalog().drop_table(tables.place.table)
    tables.make()
    assert sink.identity() != before


def test_a_start_finds_the_newest_batch_and_its_driver(tables: Tables) -> None:
    two_batches(tables)
    sink = tables.sink("two")
    holder = sink.holder()
    assert holder is not None
    assert (holder.writers, holder.generation, holder.batch) == ({"one"}, 1, 1)
    sink.start(EXACTLY_ONCE, 2, [])
    assert sink.marks() == {WHOLE_BATCH: marker(1).mark()}


def test_a_marker_outlives_all_snapshots_before_the_newest(tables: Tables) -> None:
    snapshots = two_batches(tables)
    tables.started("two", 2)
    expire(tables, *snapshots)
    assert len(tables.load().metadata.snapshots) == 1
    assert newest(tables) == 1


def test_a_marker_outlives_compaction_other_writers_and_expiry(tables: Tables) -> None:
    driver = tables.started("one", 1)
    driver.append(tables.files("b0"), marker(0))
    tables.append_by_other("other")
    driver.append(tables.files("b1"), marker(1))
    tables.load().overwrite(tables.load().scan().to_arrow())  # the same rows in another file, by pyiceberg
    assert newest(tables) == 1
    tables.append_by_other("other")
    tables.expire_all_but_newest()
    assert "oncebench" not in str(tables.load().metadata.snapshots)
    sink = tables.sink("two")
    sink.start(EXACTLY_ONCE, 2, [])
    assert sink.marks() == {WHOLE_BATCH: marker(1).mark()}, "one row, though others added two"
    assert tables.keys() == ["b0", "b1", "other", "other"]


def test_a_rolled_back_table_lacks_its_newest_batch(tables: Tables) -> None:
    start, first, _ = two_batches(tables)
    roll_back(tables, first)
    assert newest(tables) == 0
    roll_back(tables, start)
    assert newest(tables) is None


def test_another_writer_after_a_rollback_hides_nothing(tables: Tables) -> None:
    _, first, second = two_batches(tables)
    roll_back(tables, first)
    table = tables.load()
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(tables.files("other")[0])
    expire(tables, second)
    assert newest(tables) == 0


def test_a_table_without_its_branch_lacks_every_batch(tables: Tables) -> None:
    two_batches(tables)
    with tables.load().manage_snapshots() as update:
        update._remove_ref_snapshot(MAIN_BRANCH)
    assert newest(tables) is None


def test_a_batch_after_an_accepted_rollback_is_taken(tables: Tables) -> None:
    _, first, _ = two_batches(tables)
    roll_back(tables, first)
    tables.started("two", 2).append(tables.files("again"), marker(1, "two"))
    assert newest(tables) == 1
    assert tables.keys() == ["again", "b0"]


def test_a_deleted_property_is_read_from_the_summary(tables: Tables) -> None:
    two_batches(tables)
    tables.load().transaction().remove_properties(KEYS.marker).commit_transaction()
    assert newest(tables) == 1


def test_a_claim_counts_as_the_newest_batch(tables: Tables) -> None:
    tables.started("one", 1).claim(5)
    found = marks_of(tables.load().metadata, KEYS)[WHOLE_BATCH]
    assert (found.batch, found.driver) == (5, "one")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("oncebench.marker.job", "{}"),
        ("oncebench.marker.job", "no JSON"),
        ("oncebench.claim.job", '{"batch": "x", "driver": ""}'),
        ("oncebench.driver.job", '{"generation": null}'),
    ],
)
def test_a_changed_property_is_refused_by_name(tables: Tables, key: str, text: str) -> None:
    tables.properties(**{key: text})
    with pytest.raises(RefusedStart, match=f"the table property {key} is not as this sink wrote it"):
        tables.sink().holder()


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        (t.StructType([*SCHEMA.fields, t.StructField("x", t.DateType())]), "column 'x' is missing and must be 'date32"),
        (t.StructType([SCHEMA["key"], t.StructField("n", t.StringType())]), "column 'n' is 'int64' and must be 'str"),
        (t.StructType([SCHEMA["key"]]), "column 'n' is not a column of the rows"),
    ],
)
def test_other_columns_are_refused_by_name(tables: Tables, schema: t.StructType, match: str) -> None:
    refused(tables, match, schema)


def test_a_required_column_is_refused(tmp_path: Path) -> None:
    tables = Tables(LocalPlace(tmp_path, "shop.orders"))
    fields = (NestedField(1, "key", StringType(), required=True), NestedField(2, "n", LongType()))
    tables.catalog().make(Schema(*fields))
    refused(tables, "column 'key' is required, and the query's column may be null")


@pytest.mark.parametrize("kind", [t.YearMonthIntervalType(), t.CalendarIntervalType(), t.VariantType()])
def test_a_type_without_a_form_in_iceberg_is_refused(kind: t.DataType) -> None:
    with pytest.raises(RefusedStart, match=r"column 'x' is .*, which Iceberg's format version 2 has no type for"):
        iceberg_schema(t.StructType([t.StructField("x", kind)]))


def partitioned(tmp_path: Path, **transforms: Any) -> Tables:
    tables = Tables(LocalPlace(tmp_path, "shop.orders"))
    kinds = [t.StructField("key", t.StringType()), t.StructField("at", t.TimestampType())]
    table = tables.catalog().make(iceberg_schema(t.StructType(kinds)))
    with table.update_spec() as update:
        for name, transform in transforms.items():
            update.add_field(name, transform)
    return tables


@pytest.mark.parametrize("transform", [IdentityTransform(), BucketTransform(4), DayTransform()])
def test_identity_bucket_and_day_are_accepted(tmp_path: Path, transform: Any) -> None:
    tables = partitioned(tmp_path, at=transform)
    assert unsuitable(tables.load().metadata) is None


def test_another_partitioning_is_refused(tmp_path: Path) -> None:
    tables = partitioned(tmp_path, key=TruncateTransform(2))
    assert "supports identity, bucket and day only" in str(unsuitable(tables.load().metadata))


@pytest.mark.parametrize(("name", "value"), [("format-version", "1"), ("write.format.default", "orc")])
def test_another_format_is_refused(tmp_path: Path, name: str, value: str) -> None:
    tables = Tables(LocalPlace(tmp_path, "shop.orders"))
    catalog = tables.catalog()._catalog()
    catalog.create_namespace("shop")
    catalog.create_table(tables.place.table, iceberg_schema(SCHEMA), properties={name: value})
    refused(tables, name.replace("-", " ") if name == "format-version" else name)


def test_a_damaged_catalog_is_refused(tables: Tables) -> None:
    tables.place.file.write_bytes(b"no database" * 100)
    with pytest.raises(RefusedStart, match="file is not a database"):
        tables.sink().identity()


def test_a_locked_catalog_ends_a_start_but_not_for_good(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "BUSY_S", 0.1)
    with closing(sqlite3.connect(tables.place.file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DeliveryFailed, match=r"No row was read .* is locked .*End that program") as failed:
            tables.sink().identity()
    assert failed.value.restart_helps
    assert tables.sink().identity()


def test_lost_metadata_is_refused(tables: Tables) -> None:
    Path(tables.load().metadata_location).unlink()
    with pytest.raises(RefusedStart, match=r"shop\.orders .* cannot be used: .*No such file"):
        tables.sink().identity()


@pytest.mark.parametrize("output", ["s3://bucket/shop.orders", "/data/warehouse", "/data/.orders"])
def test_a_place_that_is_no_table_is_refused(output: str) -> None:
    with pytest.raises(RefusedStart, match=r"/data/warehouse/NAMESPACE\.TABLE"):
        place_of({"output": output})


def test_the_file_of_a_catalog_is_no_warehouse() -> None:
    with pytest.raises(RefusedStart, match=r"Give the warehouse's folder, /data/warehouse\."):
        place_of({"output": "/data/warehouse/catalog.sqlite/shop.orders"})


def test_a_job_names_warehouse_and_table() -> None:
    sink = IcebergTable("/data/warehouse", "shop.orders", sink_id="job")
    assert place_of({"output": sink.output, **sink.more}) == LocalPlace(Path("/data/warehouse"), "shop.orders")
    assert sink.kind == "iceberg"


@pytest.mark.parametrize("marked", [True, False])
def test_only_a_marked_batch_may_be_in_the_table_after_a_restart(marked: bool) -> None:
    assert (_cause(Unanswered("late"), marked).restart == UNLESS_THERE) == marked


@pytest.mark.parametrize(("kept", "left"), [(1, 0), (0, -1)])
def test_a_rollback_stays_known_when_snapshots_expire(tables: Tables, kept: int, left: int) -> None:
    roll_back(tables, two_batches(tables)[kept])
    for generation in (2, 3):
        sink = tables.sink(f"d{generation}")
        sink.start(EXACTLY_ONCE, generation, [])
        assert (sink.newest_batch(), [mark.batch for mark in sink.marks().values()]) == (left, [left] * kept)
        tables.expire_all_but_newest()


def test_a_replaced_table_lacks_every_batch(tables: Tables) -> None:
    two_batches(tables)
    with tables.load().manage_snapshots() as update:  # as CREATE OR REPLACE TABLE, which keeps UUID and properties
        update._remove_ref_snapshot(MAIN_BRANCH)
    tables.append_by_other("other")
    assert newest(tables) is None


def test_a_tag_on_an_expired_batch_is_no_rollback(tables: Tables) -> None:
    start, first, second = two_batches(tables)
    tables.load().manage_snapshots().create_tag(second, "audited").commit()
    for name in ("x", "y"):
        tables.append_by_other(name)
    later = tables.load().metadata.snapshots[-2].snapshot_id
    expire(tables, start, first, later)
    assert newest(tables) == 1
    tables.sink("two").start(EXACTLY_ONCE, 2, [])


@pytest.mark.parametrize("name", ["a%41b", "a#b", "a?b", "a b", "ä"])
def test_a_warehouse_has_any_name(tmp_path: Path, name: str) -> None:
    tables = Tables(LocalPlace(tmp_path / name, "shop.orders"))
    tables.make()
    tables.started("one", 1).append(tables.files("a"), marker(0))
    assert tables.keys() == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("kind", [t.FloatType(), t.DoubleType()])
def test_a_partition_by_a_floating_point_column_is_refused(tmp_path: Path, kind: t.DataType) -> None:
    tables = Tables(LocalPlace(tmp_path, "shop.orders"))
    table = tables.catalog().make(iceberg_schema(t.StructType([t.StructField("x", kind)])))
    with table.update_spec() as update:
        update.add_field("x", IdentityTransform())
    assert "floating-point column 'x'" in str(unsuitable(tables.load().metadata))


@pytest.mark.parametrize(
    ("name", "text"),
    [("write.metadata.previous-versions-max", "many"), ("write.avro.compression-codec", "lz4")],
)
def test_a_property_that_pyiceberg_cannot_use_refuses_a_start(tmp_path: Path, name: str, text: str) -> None:
    tables = Tables(LocalPlace(tmp_path, "shop.orders"))
    catalog = tables.catalog()._catalog()
    catalog.create_namespace("shop")
    catalog.create_table(tables.place.table, iceberg_schema(SCHEMA), properties={name: text})
    refused(tables, f"{text}. Correct that table property")


class _Sent(Exception):
    """A request, with the proxies that it would use."""


@pytest.mark.parametrize(
    ("host", "proxied"),
    [("127.0.0.1", False), ("localhost", False), ("[::1]", False), ("mine", False), ("catalog.example", True)],
)
def test_a_proxy_is_asked_for_other_machines_only(host: str, proxied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(_self: requests.Session, _request: Any, **options: Any) -> None:
        raise _Sent("http" in options["proxies"])

    monkeypatch.setattr(requests.Session, "send", send)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "mine")
    with pytest.raises(_Sent) as sent:
        RestPlace.of(f"http://{host}:1/shop.orders").open()
    assert sent.value.args == (proxied,)
