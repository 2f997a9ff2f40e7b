"""Fills a disk at one step of a batch, and frees it some time later.

Promise: only a small disk that belongs to the run is filled (`oncebench.servers.small_disk`). The disk has room again
when the fault ends. Neither the pipeline nor the broker is started while its disk is full. A pipeline whose sink is
elsewhere may hit the next such fault before the broker halts because of the first one. The pipeline then stays stopped
until the first fault ends.

Failure modes: the process writes nothing in the given seconds, or survives the lost write, or another fault kills the
process first, or the process ends for another reason: its log does not name the full disk. The fault then counts as not
exercised (`nemesis-idle`).
"""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

from oncebench.faults.context import OVERTAKEN, FaultContext, waiting
from oncebench.faults.server import KAFKA
from oncebench.processes.child import read_log
from oncebench.record import events
from oncebench.servers.small_disk import BALLAST, fill

# Folders of a run: Spark's checkpoint with our journal, the output of a sink that writes local files, and the topics
# of a broker that only this run uses.
CHECKPOINT, OUTPUT, BROKER = "checkpoint", "sink", str(Path("broker", "kafka"))
# How logs name a full disk: the system's text in Java, Python and C, and the texts of SQLite and of the pipeline.
_NAMED = re.compile(rb"no space left|disk is full", re.IGNORECASE)
_OTHER_CAUSE = "the {} ended, and its log does not name the full disk."


def fill_disk(context: FaultContext, seconds: float, *, folder: str) -> Generator[None]:
    """Fills the disk until the pipeline has died because of it, at most for `seconds`."""
    yield from _wait_for_room(context, folder)
    log = context.child.log
    log_before = log.stat().st_size
    with context.without_restarts():
        ballast = fill(context.config.record / folder)
        try:
            context.note(events.DISK_FULL, folder=folder)
            context.resume_pipeline()
            yield from waiting(lambda: not context.pipeline_alive(), seconds)
        finally:
            ballast.unlink()
            context.note(events.DISK_HAS_ROOM, folder=folder)
        if context.pipeline_alive():
            context.idle("the pipeline survived the full disk")
        elif context.later_hits():
            context.idle(OVERTAKEN)
        elif not _names_full_disk(log, log_before):
            context.idle(f"{_OTHER_CAUSE.format('pipeline')} Its last words: {context.control.last_words()}")


def fill_broker_disk(context: FaultContext, seconds: float) -> Generator[None]:
    """Fills the disk of the broker's topics until the broker halts, then restarts the broker.

    The disk stays full at most for `seconds`.
    """
    broker = context.servers[KAFKA]
    yield from _wait_for_room(context, BROKER)
    log_before = broker.log.stat().st_size
    with context.without_restarts():
        ballast = fill(context.config.record / BROKER)
        try:
            context.note(events.DISK_FULL, folder=BROKER)
            context.resume_pipeline()
            yield from waiting(lambda: not broker.alive, seconds)
            if broker.alive:
                context.idle("the broker survived the full disk")
            elif any(hit["action"] == "kill-broker" for hit in context.later_hits()):
                context.idle(OVERTAKEN)
            elif not _names_full_disk(broker.log, log_before):
                context.idle(_OTHER_CAUSE.format("broker"))
            else:
                context.note(events.BROKER_HALTED)
        finally:
            try:
                ballast.unlink()
                context.note(events.DISK_HAS_ROOM, folder=BROKER)
            finally:
                broker.restart()
                context.note(events.BROKER_BACK)


def _names_full_disk(log: Path, offset: int) -> bool:
    """Whether a process wrote to its log, from byte `offset` on, that a disk is full."""
    return _NAMED.search(read_log(log, offset)) is not None


def _wait_for_room(context: FaultContext, folder: str) -> Generator[None]:
    """Waits for the end of an earlier fault that still fills this disk.

    The end of the earlier fault would also free the space that this fault fills. The earlier fault ends by itself, at
    the latest after its seconds.
    """
    yield from waiting(lambda: not any((context.config.record / folder).glob(f"{BALLAST}*")))
