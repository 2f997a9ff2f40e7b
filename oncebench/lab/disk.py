"""The disks of a run: a small one under a folder, there only where a fault of the run fills it.

Promise: after the run the folder holds what it would hold anyway. What can go wrong: see `small_disk`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from oncebench.delivery.failpoints import parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.scenario.cell import Cell
from oncebench.servers.small_disk import own_namespace, small_disk

# A checkpoint took 1.1 MB of 4 kB pages after 30 batches, an output folder less than half of its events' bytes, a new
# broker 72 kB: what fits many times, and is as much memory while it is full. A broker has padded events whole.
BASE_BYTES = 64_000_000
BYTES_PER_EVENT = 400


def prepare_disks(cells: Iterable[Cell]) -> None:
    """To be called before these cells are run and before there are threads: they must all see the same disks."""
    if any(_filled(cell) for cell in cells):
        with suppress(OSError):  # told where a disk is to be mounted
            own_namespace()


@contextmanager
def open_disks(cell: Cell, folder: Path) -> Iterator[None]:
    """The disks that the faults of a cell fill, mounted below the run's folder until the end of the context."""
    size = BASE_BYTES + (BYTES_PER_EVENT + cell.record_bytes) * (100 * cell.sessions + cell.open_sessions)
    with ExitStack() as stack:
        for name in _filled(cell):
            place = folder / name
            place.parent.mkdir(mode=0o700, exist_ok=True)
            stack.enter_context(small_disk(place, size))
        yield


def _filled(cell: Cell) -> set[str]:
    """The folders of a run that its faults fill."""
    return {name for fault in cell.faults if (name := FAULTS[parse_fault(fault).action].fills) is not None}
