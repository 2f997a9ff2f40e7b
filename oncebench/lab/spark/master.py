"""Chooses the Spark master of a run: with separate executors only if a fault kills one.

Promise: every other run has the master of its cell. A master whose executors the suite did not start is refused
before a run begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.faults.catalogue import kinds
from oncebench.scenario.cell import Cell
from pipeline.spark.local_cluster import PREFIX, is_local_cluster

# Two executors: one can die while the other holds the rows that it has prepared. One core each: as many cores as other
# runs have. 1024 MB each: Spark's default for an executor.
EXECUTORS = f"{PREFIX}[2,1,1024]"


def master_for(cell: Cell, spark: Mapping[str, Any], cluster: str | None = None) -> dict[str, Any]:
    """Returns the fields of a pipeline's configuration with Spark's master and jars.

    Args:
        spark: the lab's fields (`Lab.spark`), without a master.
        cluster: the master of the run's own cluster.
    """
    if cluster is not None:
        return {**spark, "master": cluster}
    wanted = any(kind.on_executors for kind in kinds(cell.faults))
    master = EXECUTORS if wanted and not is_local_cluster(cell.master) else cell.master
    # The archive of classes fits only a driver that runs Spark from its pip folder (`pipeline.spark.local_cluster`).
    return {**spark, "master": master, **({"jvm_options": ()} if is_local_cluster(master) else {})}
