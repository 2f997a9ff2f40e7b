"""Where the pipeline of a run computes: executors beside its driver only where a fault of the run kills one.

Promise: any other run has the master that its cell names. What can go wrong: nothing of its own; a master whose
executors are not ours was refused before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.delivery.failpoints import parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.scenario.cell import Cell
from pipeline.spark.local_cluster import PREFIX, is_local_cluster

# Two, so that one can die while the other holds what it has prepared; of one core each, as many as a run has
# otherwise; of 1024 MB, which is what Spark gives an executor by default.
EXECUTORS = f"{PREFIX}[2,1,1024]"


def placed(cell: Cell, spark: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a pipeline's configuration that tell Spark where to compute, and where its jars are.

    Args:
        spark: of the lab, without executors.
    """
    wanted = any(FAULTS[parse_fault(fault).action].on_executors for fault in cell.faults)
    master = EXECUTORS if wanted and not is_local_cluster(cell.master) else cell.master
    # The archive of classes is of a driver whose Spark stands where pip put it (`pipeline.spark.local_cluster`).
    return {**spark, "master": master, **({"jvm_options": ()} if is_local_cluster(master) else {})}
