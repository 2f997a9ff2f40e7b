"""The disks of a run: a small one under a folder, there only where a fault of the run fills it.

Promise: after the run the folder holds what it would hold anyway. What can go wrong: see `small_disk`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from oncebench.nemesis.acts import NEMESES
from oncebench.scenario import Cell
from oncebench.services.small_disk import small_disk
from pipeline.failpoints import parse_fault

# A checkpoint took 1.1 MB of 4 kB pages after 30 batches, an output folder less than half of its events' bytes, a new
# broker 72 kB: what fits many times, and is as much memory while it is full.
BASE_BYTES = 64_000_000
BYTES_PER_EVENT = 400


@contextmanager
def open_disks(cell: Cell, folder: Path) -> Iterator[None]:
    """The disks that the faults of a cell fill, mounted below the run's folder until the end of the context."""
    filled = {NEMESES[parse_fault(fault).action].fills for fault in cell.faults} - {None}
    size = BASE_BYTES + BYTES_PER_EVENT * 100 * cell.sessions
    with ExitStack() as stack:
        for name in filled:
            place = folder / str(name)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            stack.enter_context(small_disk(place, size))
        yield
