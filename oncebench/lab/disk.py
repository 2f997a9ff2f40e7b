"""Mounts the small disks of a run, only if a fault of the run fills one.

Promise: after the run the folder has the same content as without a disk of its own. Failures: see `small_disk`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from loadgen.session import EVENTS_PER_SESSION
from oncebench.faults.catalogue import kinds
from oncebench.scenario.cell import Cell
from oncebench.servers.small_disk import own_namespace, small_disk

# Measured: a checkpoint took 1.1 MB (in pages of 4 kB) after 30 batches. An output folder took less than half the bytes
# of its events, a new broker 72 kB. The size fits each of them many times; a full disk takes as much memory. A broker
# stores the padding of events too.
BASE_BYTES = 64_000_000
BYTES_PER_EVENT = 400


def prepare_disks(cells: Iterable[Cell]) -> None:
    """Enters a mount namespace if a fault of these cells fills a disk.

    Call this before the cells run and before any thread starts, because all threads must see the same disks.
    """
    if any(_filled(cell) for cell in cells):
        with suppress(OSError):  # mounting the disk reports the same failure
            own_namespace()


@contextmanager
def open_disks(cell: Cell, folder: Path) -> Iterator[None]:
    """Mounts the disks that a cell's faults fill, below the run's folder, for the context."""
    events = EVENTS_PER_SESSION * cell.sessions + cell.open_sessions
    size = BASE_BYTES + (BYTES_PER_EVENT + cell.record_bytes) * events
    with ExitStack() as stack:
        for name in _filled(cell):
            place = folder / name
            place.parent.mkdir(mode=0o700, exist_ok=True)
            stack.enter_context(small_disk(place, size))
        yield


def _filled(cell: Cell) -> set[str]:
    """Returns the folders of a run that its faults fill."""
    return {kind.fills for kind in kinds(cell.faults) if kind.fills is not None}
