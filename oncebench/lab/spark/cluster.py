"""Gives a run a Spark cluster of its own.

The cluster has a master and workers on this machine, as separate processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from oncebench.lab.lab import Lab
from oncebench.lab.spark.executor_archive import prepare_executors
from oncebench.scenario.cell import Cell
from oncebench.servers.spark_cluster import start_spark_cluster

# The folder of a run that has the logs and working folders of master and workers.
FOLDER = "spark"


@contextmanager
def open_cluster(cell: Cell, lab: Lab, folder: Path, interrupted: Callable[[], bool]) -> Iterator[Lab]:
    """Yields the lab for this run, with a cluster if the cell asks for one and the lab has none.

    Its files are below the run's folder.

    Raises:
        MissingEnvironment: the workers do not register in time.
        UserError: interrupted meanwhile (exit code 130).
    """
    if not cell.workers or lab.cluster is not None:
        yield lab
        return
    start = prepare_executors(lab.java, lab.class_path, lab.environment())
    with start_spark_cluster(folder / FOLDER, lab.java, cell.workers, interrupted, start) as cluster:
        yield replace(lab, cluster=cluster)
