"""Chooses the broker of a run: the lab's, or its own on a small disk that a fault fills.

Promise: a fault that fills a broker's disk never touches the lab's broker or the topics of other runs. Failures: see
`small_disk` and `start_kafka`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from oncebench.delivery.failpoints import parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.faults.disk import BROKER
from oncebench.faults.server import KAFKA
from oncebench.lab.lab import Lab, own_kafka
from oncebench.scenario.cell import Cell


@contextmanager
def open_broker(cell: Cell, lab: Lab, folder: Path) -> Iterator[Lab]:
    """Yields the lab for this run.

    If a fault of the cell fills a broker's disk, the lab has a broker below the run's folder, on the disk mounted
    there.
    """
    if all(FAULTS[parse_fault(fault).action].fills != BROKER for fault in cell.faults):
        yield lab
        return
    with own_kafka((folder / BROKER).parent, lab.java) as (kafka, link):
        yield replace(lab, kafka=kafka, servers={**lab.servers, KAFKA: kafka}, link=link)
