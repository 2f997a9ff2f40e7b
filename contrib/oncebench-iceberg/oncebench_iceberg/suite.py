"""The Iceberg sink in the suite: a warehouse and a table per run, and a committed reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.sinks.reader import Snapshots
from oncebench.sinks.suite import Place, SuiteSink, Traits
from oncebench_iceberg.sink import KINDS


# The functions import pyiceberg, for the reason in `oncebench_iceberg.sink`.
def _provide(place: Place) -> dict[str, Any]:
    from oncebench_iceberg.catalog import Catalog  # noqa: PLC0415
    from oncebench_iceberg.catalog import Place as TablePlace  # noqa: PLC0415
    from oncebench_iceberg.columns import iceberg_schema  # noqa: PLC0415

    target = {"output": str((place.folder / "warehouse" / "oncebench.rows").absolute()), "key": place.key}
    catalog = Catalog(TablePlace.of(target))
    catalog.make(iceberg_schema(place.schema))
    catalog.close()
    return target


def _read(target: Mapping[str, Any]) -> Snapshots:
    from oncebench_iceberg.catalog import Place as TablePlace  # noqa: PLC0415
    from oncebench_iceberg.reader import SnapshotFollower  # noqa: PLC0415

    follower = SnapshotFollower(TablePlace.of(target), str(target["key"]))
    return Snapshots(follower.fresh, follower.leftovers, close=follower.close)


SUITE_SINKS = (
    SuiteSink(
        kind=KINDS[0],
        traits=Traits(ordered=False, self_cleaning=True, batch_atomic=True, has_write_timestamps=True),
        provide=_provide,
        read=_read,
        writes_local_files=True,
    ),
)
