"""Restarts shared servers that have ended, before a run that needs them.

The runs of a series share the lab's servers. A server may have died in an earlier run, or may not have come back in
time after a fault. Without a new start every later run of the series would fail too.

Promise: every server of the suite's own that the cell needs runs. A server that runs is left alone.

Failures: a server does not start (`UserError` with the end of its log). Then only this run fails.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol, runtime_checkable

from oncebench.faults.server import KAFKA
from oncebench.lab.lab import Lab
from oncebench.scenario.cell import Cell
from oncebench.sinks.registry import suite_sinks

_log = logging.getLogger(__name__)


@runtime_checkable
class Restartable(Protocol):
    """A server that can be started again with the same data, at the same address."""

    @property
    def alive(self) -> bool: ...
    @property
    def log(self) -> Path: ...
    def start(self) -> None: ...


def start_dead_servers(cell: Cell, lab: Lab) -> None:
    """Starts the servers of this lab that the cell needs and that do not run.

    The server of a sink's package may lack what `Restartable` needs. It is left as it is.
    """
    for name in (KAFKA, *suite_sinks()[cell.sink].traits.services):
        server = lab.servers.get(name)
        if isinstance(server, Restartable) and not server.alive:
            _log.warning("the server %s has ended and is started again. See %s", name, server.log)
            server.start()
