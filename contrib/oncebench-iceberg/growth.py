"""Measures how the cost of a commit grows with the number of earlier commits, without Spark.

    python contrib/oncebench-iceberg/growth.py --commits 1000                  # without maintenance
    python contrib/oncebench-iceberg/growth.py --commits 1000 --keep 100       # every 100 commits, keep 100 snapshots

Each commit adds one data file of one row with its marker, as a batch of the sink does. The files are all the same file,
because a commit does not read them. Times are the CPU time of this process, so other programs change them little.

The script prints one line per step. It has the median of the last ten commits, and the sizes of what a commit reads and
writes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from oncebench_iceberg.catalogs.catalog import Catalog
from oncebench_iceberg.catalogs.local import LocalPlace, folder_of
from oncebench_iceberg.commit import Commits
from oncebench_iceberg.marker import Keys, Marker
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from oncebench.delivery import digest

# Enough that one slow commit does not show; few enough that they are all of one size.
_MEDIAN_OF = 10
_EXPIRE_EVERY = 100


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        catalog = Catalog(LocalPlace(Path(folder), "shop.orders"))
        table = catalog.make(Schema(NestedField(1, "n", LongType())))
        if options.property:
            table.transaction().set_properties(
                dict(each.split("=", 1) for each in options.property)
            ).commit_transaction()
        driver = Commits(catalog, Keys("job"), "one", 1)
        driver.take()
        (file,) = _dataframe_to_data_files(table.metadata, pa.table({"n": [1]}), table.io)
        print("commits  cpu_ms  wall_ms  snapshots  manifests  metadata_kb  list_kb  files", flush=True)
        cpu_ms: list[float] = []
        wall_ms: list[float] = []
        for batch in range(options.commits):
            cpu_s, wall_s = time.process_time(), time.perf_counter()
            driver.append([file], Marker(batch, 1, digest.to_text(batch), "one"))
            cpu_ms.append((time.process_time() - cpu_s) * 1000)
            wall_ms.append((time.perf_counter() - wall_s) * 1000)
            if batch + 1 in options.steps or batch + 1 == options.commits:
                medians = [statistics.median(each[-_MEDIAN_OF:]) for each in (cpu_ms, wall_ms)]
                print(_line(batch + 1, *medians, catalog.load()), flush=True)
            if options.keep and (batch + 1) % _EXPIRE_EVERY == 0:
                _expire(catalog.load(), options.keep)


def _line(commits: int, cpu_ms: float, wall_ms: float, table: Table) -> str:
    newest = table.current_snapshot()
    assert newest is not None
    metadata, manifests = Path(table.metadata_location), Path(newest.manifest_list)
    folder = folder_of(table.location())
    assert folder is not None
    return (
        f"{commits:7} {cpu_ms:7.1f} {wall_ms:8.1f} {len(table.metadata.snapshots):10} "
        f"{len(newest.manifests(table.io)):10} {metadata.stat().st_size / 1024:12.0f} "
        f"{manifests.stat().st_size / 1024:8.1f} {sum(1 for _ in (folder / 'metadata').iterdir()):6}"
    )


def _expire(table: Table, keep: int) -> None:
    ids = [each.snapshot_id for each in sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)]
    if len(ids) > keep:
        table.maintenance.expire_snapshots().by_ids(ids[:-keep]).commit()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures how the cost of a commit grows with their number.")
    parser.add_argument("--commits", type=int, default=1000, help="Number of commits")
    parser.add_argument("--keep", type=int, default=0, help="Snapshots to keep, every 100 commits; 0: keep all")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="Property of the table")
    parser.add_argument("--folder", type=Path, help="Folder for the table, which is removed at the end")
    options = parser.parse_args()
    options.steps = {10, 50, *range(100, 1000, 100), *range(1000, options.commits + 1, 500)}
    return options


if __name__ == "__main__":
    main()
