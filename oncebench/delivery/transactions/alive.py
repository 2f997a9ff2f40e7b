"""Whether the driver that was started last on a checkpoint still runs on this machine.

Promise: a process counts as the driver only if it has the driver's id and the driver's name
(`oncebench.delivery.starts.process`). If the journal has no name, the process must be older than the generation. A
driver on another machine, or with other process ids in a container, is not found: the sink's own signs and the new
generation cover it.
"""

from __future__ import annotations

import os
import socket

import psutil

from oncebench.delivery.journal import newest_start
from oncebench.delivery.starts.process import process_name
from oncebench.delivery.stores.choose import Place

# The clock may have been set since the start. A process id is not used again so soon.
_SLACK_S = 60.0


def living_driver(journal: Place) -> str | None:
    """Returns the process of the newest start, for a message.

    None: the process has ended, or is not of this machine.

    This process itself does not count: it is the one that asks, perhaps again.

    Raises:
        RefusedStart: the journal is damaged.
    """
    found = newest_start(journal)
    if found is None:
        return None
    entry, at = found
    pid = int(entry.get("pid", 0))
    if pid == os.getpid() or entry.get("host", socket.gethostname()) != socket.gethostname():
        return None
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or not _is_driver(process, entry.get("process"), at):
            return None
        return f"process {process.pid} ({process.name()})"
    except psutil.Error:
        return None


def _is_driver(process: psutil.Process, name: str | None, at: float) -> bool:
    """Whether a process with the driver's id is the driver.

    Args:
        name: the driver's; None: not known.
        at: when the driver took its generation.
    """
    if name is not None:
        return process_name(process.pid) == name
    return bool(process.create_time() <= at + _SLACK_S)
