"""The broker of a run: the lab's, or one of the run's own on a small disk, where a fault of the run fills that.

Promise: the lab's broker, and what other runs have in it, is left alone by such a run. What can go wrong: see
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
    """The lab as this run sees it: with a broker below the run's folder, on the disk that is mounted there, if a fault
    of the cell fills it."""
    if all(FAULTS[parse_fault(fault).action].fills != BROKER for fault in cell.faults):
        yield lab
        return
    with own_kafka((folder / BROKER).parent, lab.java) as (kafka, link):
        yield replace(lab, kafka=kafka, servers={**lab.servers, KAFKA: kafka}, link=link)
