"""Helpers of the tests: real tables of a real SQLite catalog, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from oncebench_iceberg.catalogs.catalog import Catalog
from oncebench_iceberg.catalogs.place import Place
from oncebench_iceberg.columns import arrow_schema, iceberg_schema
from oncebench_iceberg.commit import Commits
from oncebench_iceberg.driver import IcebergSink
from oncebench_iceberg.marker import Keys, Marker
from oncebench_iceberg.sink import SUPPORTS
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql.types import LongType, StringType, StructField, StructType

from oncebench.delivery import digest
from oncebench.delivery.contract import Support

SCHEMA = StructType([StructField("key", StringType()), StructField("n", LongType())])
EXACTLY_ONCE: Support = SUPPORTS[-1]


@dataclass
class Tables:
    """A warehouse with a table, as several drivers see it."""

    place: Place

    def catalog(self) -> Catalog:
        return Catalog(self.place)

    def make(self) -> Table:
        return self.catalog().make(iceberg_schema(SCHEMA))

    def load(self) -> Table:
        with closing(self.catalog()) as catalog:
            return catalog.load()

    def sink(self, driver: str = "one", schema: StructType = SCHEMA) -> IcebergSink:
        sink = IcebergSink(self.place, "job", 2, driver)
        sink.check_schema(schema)
        return sink

    def started(self, driver: str, generation: int) -> Commits:
        commits = Commits(self.catalog(), Keys("job"), driver, generation)
        commits.take()
        return commits

    def files(self, *keys: str) -> list[DataFile]:
        """Data files with a row per key."""
        table = self.load()
        rows = pa.table({"key": list(keys), "n": list(range(len(keys)))}).cast(arrow_schema(table.schema()))
        return list(_dataframe_to_data_files(table.metadata, rows, table.io))

    def keys(self) -> list[str]:
        return sorted(self.load().scan().to_arrow()["key"].to_pylist())

    def append_by_other(self, *keys: str) -> None:
        """Another writer adds rows."""
        table = self.load()
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(self.files(*keys)[0])

    def expire_all_but_newest(self) -> None:
        """Maintenance removes every other snapshot, with its summary."""
        table = self.load()
        newest = table.metadata.current_snapshot_id
        older = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != newest]
        table.maintenance.expire_snapshots().by_ids(older).commit()

    def properties(self, **changed: str) -> Mapping[str, str]:
        table = self.load()
        if changed:
            table.transaction().set_properties(changed).commit_transaction()
        return table.properties


def marker(batch: int, driver: str = "one", **fields: Any) -> Marker:
    return Marker(batch, 1, digest.to_text(batch), driver, **fields)
