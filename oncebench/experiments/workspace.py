"""Opens what a command's runs share: work dir, servers, and the event that Ctrl-C sets.

Promise: a used work dir, a full disk and an unusable object store are refused before a server starts. At the end every
server is stopped, and then the large files are deleted, unless they are to be kept.

Failures: the work dir cannot be used (`UserError`), or has too little room (`MissingEnvironment`). See also
`prepare_stores` and `open_lab`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadgen.session import EVENTS_PER_SESSION
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.broker import isolates
from oncebench.lab.disk import prepare_disks
from oncebench.lab.engine import SPARK, Engine
from oncebench.lab.lab import START_TIMEOUT_S, Lab, open_lab
from oncebench.lab.store import prepare_stores
from oncebench.live.view import view
from oncebench.measure import BULKY, measure
from oncebench.report.schema import Report
from oncebench.run.cell import During
from oncebench.run.interrupt import gently
from oncebench.scenario.cell import Cell
from oncebench.workdir import delete_below, open_work_dir, refuse_used, require_free

# What a work dir keeps until its end, per event without padding: the record of each run, and its topics in each broker.
# Measured in `compare --profile price` (40 runs of 1.6 M events, one broker): 239 and 143 bytes. A quarter is added.
RECORD_BYTES_PER_EVENT = 300
BROKER_BYTES_PER_EVENT = 180
# A run needs more while it goes: state, logs, and the files that the audit sorts. So the largest run gets this besides.
WORKING_BYTES_PER_EVENT = 1000
BASE_BYTES = 200_000_000


def spark(_cell: Cell, _lab: Lab) -> Engine:
    """Returns the engine of every cell that is no peer's."""
    return SPARK


@dataclass(frozen=True)
class Workspace:
    """Where the runs of a command take place. A cell says what runs.

    Attributes:
        folder: the work dir, which must be new or empty.
        kafka: the user's own Kafka; None: the suite starts one.
        keep: whether the large files of a run stay in the work dir.
        start_timeout_s: see `Lab`.
        engine: returns the engine of a cell.
    """

    folder: Path
    kafka: KafkaAccess | None = None
    keep: bool = False
    start_timeout_s: float = START_TIMEOUT_S
    engine: Callable[[Cell, Lab], Engine] = spark


@dataclass(frozen=True)
class OpenWorkspace:
    """An open workspace: its work dir, its servers, and the event that Ctrl-C sets."""

    workspace: Workspace
    folder: Path
    lab: Lab
    interrupted: threading.Event

    def measure(self, cell: Cell, folder: Path, title: str, during: During | None = None) -> Report:
        """Runs a cell in an open work dir, with its title in the live view; returns its report.

        Args:
            during: called with the pipeline while it is measured, see `oncebench.run.cell.run_cell`.
        """
        with view(title) as show:
            engine = self.workspace.engine(cell, self.lab)
            return measure(cell, self.lab, folder, show, self.interrupted, engine, during)

    def clean(self, folder: Path) -> None:
        """Deletes the large files of a work dir, unless they are to be kept."""
        if not self.workspace.keep:
            for name in BULKY:
                delete_below(folder, folder / name)


@contextmanager
def open_workspace(workspace: Workspace, cells: Sequence[Cell]) -> Iterator[OpenWorkspace]:
    """Opens a workspace for these cells, or for smaller cells of the same sinks."""
    prepare_disks(cells)
    prepare_stores(cells)
    with open_work_dir(workspace.folder) as work, gently() as interrupted:
        refuse_used(work.path)
        require_free(work.path, bytes_needed(cells))
        brokers = min((cell.brokers for cell in cells), default=1)  # a run that needs others starts its own
        apart = all(isolates(cell) for cell in cells)
        sinks = {cell.sink for cell in cells}
        with open_lab(work.path, workspace.kafka, sinks, workspace.start_timeout_s, brokers, apart) as lab:
            opened = OpenWorkspace(workspace, work.path, lab, interrupted)
            yield opened
        opened.clean(work.path)


def run_one(cell: Cell, workspace: Workspace, during: During | None = None) -> Report:
    """Runs a cell in the work dir itself, with servers of its own; returns its report.

    Args:
        during: see `OpenWorkspace.measure`.
    """
    with open_workspace(workspace, [cell]) as opened:
        return opened.measure(cell, opened.folder, cell.brief, during)


def bytes_needed(cells: Sequence[Cell]) -> int:
    """Returns the disk space that the work dir of these cells needs."""
    kept = sum(
        _events(cell)
        * (RECORD_BYTES_PER_EVENT + cell.brokers * BROKER_BYTES_PER_EVENT + (1 + cell.brokers) * cell.record_bytes)
        + _replayed_bytes(cell)
        for cell in cells
    )
    return BASE_BYTES + kept + WORKING_BYTES_PER_EVENT * max(map(_events, cells), default=0)


def _replayed_bytes(cell: Cell) -> int:
    """Returns the disk space of the records of a user's file, in bytes.

    The records are stored, read and observed, as events and as rows.
    """
    if not cell.records:
        return 0
    return (3 + 2 * cell.brokers) * Path(cell.records).stat().st_size * cell.passes


def _events(cell: Cell) -> int:
    return cell.sessions * EVENTS_PER_SESSION + cell.open_sessions
