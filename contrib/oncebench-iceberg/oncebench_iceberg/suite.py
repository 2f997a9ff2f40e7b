"""The Iceberg sink in the suite: a table per run, and a reader.

The table is in a warehouse of its own, or in a REST catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from oncebench.sinks.reader import Snapshots
from oncebench.sinks.suite import Place, SuiteSink, Traits
from oncebench_iceberg.catalogs.configuration import import_pyiceberg
from oncebench_iceberg.sink import KINDS, REST_SERVICE, rest_address


# The functions import pyiceberg, for the reason in `oncebench_iceberg.sink`.
def _provide(place: Place) -> dict[str, Any]:
    return _made(place, str((place.folder / "warehouse" / "oncebench.rows").absolute()))


def _provide_in_rest(place: Place) -> dict[str, Any]:
    import_pyiceberg()
    from oncebench_iceberg.catalogs.rest import RestPlace  # noqa: PLC0415

    base = RestPlace.of(rest_address())
    name = place.name.replace(".", "_")  # a dot would begin another namespace
    return _made(place, replace(base, table=f"{base.table.rpartition('.')[0]}.{name}").text)


def _made(place: Place, output: str) -> dict[str, Any]:
    import_pyiceberg()
    from oncebench_iceberg.catalogs.catalog import Catalog  # noqa: PLC0415
    from oncebench_iceberg.catalogs.errors import start_without_loss  # noqa: PLC0415
    from oncebench_iceberg.catalogs.place import place_of  # noqa: PLC0415
    from oncebench_iceberg.columns import iceberg_schema  # noqa: PLC0415

    target = {"output": output, "key": place.key}
    with closing(Catalog(place_of(target))) as catalog, start_without_loss(catalog.place):
        catalog.make(iceberg_schema(place.schema))
    return target


def _read(target: Mapping[str, Any]) -> Snapshots:
    from oncebench_iceberg.catalogs.place import place_of  # noqa: PLC0415
    from oncebench_iceberg.reader import SnapshotFollower  # noqa: PLC0415

    follower = SnapshotFollower(place_of(target), str(target["key"]))
    return Snapshots(follower.fresh, follower.leftovers, close=follower.close)


_TRAITS = Traits(ordered=False, self_cleaning=True, batch_atomic=True, has_write_timestamps=True)
SUITE_SINKS = (
    SuiteSink(kind=KINDS[0], traits=_TRAITS, provide=_provide, read=_read, writes_local_files=True),
    SuiteSink(kind=KINDS[1], traits=replace(_TRAITS, services=(REST_SERVICE,)), provide=_provide_in_rest, read=_read),
)
