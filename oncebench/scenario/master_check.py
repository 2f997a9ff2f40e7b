"""Checks whether a cell can run on executors that are not on this machine.

Promise: everything that cannot work is refused before anything is started, and by what a sink declares.
"""

from __future__ import annotations

from collections.abc import Collection

from oncebench.faults.server import KAFKA
from oncebench.scenario.cell import Cell
from oncebench.sinks.registry import suite_sinks
from pipeline.spark.cluster.masters import answers, driver_address, is_loopback

_OWN_KAFKA = "--bootstrap-servers"  # every other server is a `Service`, which says how the user names it


def why_not_on_cluster(cell: Cell, ours: Collection[str] | None = None) -> str | None:
    """Why the cell cannot run on its Spark master; None if it can.

    The result is also None if all executors run on this machine.

    Args:
        ours: the servers that the suite would start; None: all that the cell needs.
    """
    if cell.on_this_machine:
        return None
    sink = suite_sinks()[cell.sink]
    if sink.writes_local_files:
        able = ", ".join(name for name, each in suite_sinks().items() if _can(name) and not each.writes_local_files)
        return (
            f"sink {cell.sink} writes files on this machine, and the executors of {cell.master} may run on others. "
            f"Take one of: {able}"
        )
    address = driver_address(cell.master)
    if address is None or not answers(cell.master):
        return f"no Spark master answers at {cell.master}. Start it, or correct the address"
    needed = sorted({KAFKA, *sink.traits.services} & set(ours if ours is not None else (KAFKA, *sink.traits.services)))
    if needed and not is_loopback(address):
        from oncebench.servers.sink_servers import service  # noqa: PLC0415  needs the extra `lab`

        named_by = ", ".join(_OWN_KAFKA if name == KAFKA else service(name).named_by for name in needed)
        return (
            f"the executors of {cell.master} cannot reach the {' and the '.join(needed)} of this run, which listen on "
            f"loopback only. Name servers of your own: {named_by}"
        )
    return None


def _can(name: str) -> bool:
    kind = suite_sinks()[name].kind
    return not (kind.certify_only or kind.missing or any(support.expected_anomaly for support in kind.supports))
