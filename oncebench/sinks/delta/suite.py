"""The Delta sink in the suite: a table per run, and a committed reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncebench.sinks.delta.reader import TableFollower
from oncebench.sinks.delta.sink import KINDS
from oncebench.sinks.folder_events import changes_in
from oncebench.sinks.reader import Snapshots
from oncebench.sinks.suite import Place, SuiteSink, Traits


def _provide(place: Place) -> dict[str, Any]:
    return {"output": str(place.folder / "table"), "key": place.key}


def _read(target: Mapping[str, Any]) -> Snapshots:
    folder = Path(target["output"])
    table = TableFollower(folder, target["key"])
    return Snapshots(table.fresh, table.leftovers, changes=changes_in(folder / "_delta_log"))


SUITE_SINKS = (
    SuiteSink(
        kind=KINDS[0],
        traits=Traits(ordered=False, self_cleaning=True, batch_atomic=True, has_write_timestamps=True),
        provide=_provide,
        read=_read,
        writes_local_files=True,
        fault_s=31.0,  # about twice as long as other sinks
        random_kill_s=31.0,
    ),
)
