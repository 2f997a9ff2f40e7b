"""Chooses the brokers of a run: the lab's, or its own.

A run has a broker of its own on a small disk if a fault fills that disk. It has brokers of its own if the lab has
another number of them, or if only one of the two needs brokers that can be cut off from each other.

Promise: a fault that fills a broker's disk never touches the lab's broker or the topics of other runs. Failures: see
`small_disk`, `start_kafka` and `start_cluster`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from oncebench.faults.catalogue import kinds
from oncebench.faults.disk import BROKER
from oncebench.faults.server import KAFKA
from oncebench.lab.lab import Lab, own_brokers
from oncebench.scenario.cell import Cell


def isolates(cell: Cell) -> bool:
    """Whether a fault of the cell cuts one broker off from the others."""
    return any(kind.isolates for kind in kinds(cell.faults))


@contextmanager
def open_broker(cell: Cell, lab: Lab, folder: Path) -> Iterator[Lab]:
    """Yields the lab for this run.

    Brokers of the run's own have their files below the run's folder, on the disk mounted there.
    """
    fills = any(kind.fills == BROKER for kind in kinds(cell.faults))
    fits = lab.brokers == cell.brokers and lab.separable == isolates(cell)
    if not fills and (fits or lab.own_kafka is None):
        yield lab
        return
    with own_brokers((folder / BROKER).parent, lab.java, cell.brokers, isolates(cell)) as (kafka, link):
        yield replace(lab, kafka=kafka, servers={**lab.servers, KAFKA: kafka}, link=link)
