"""What is done to a disk: it is full from one step of a batch on, and has room again after a while.

Promise: what is filled is a small disk of the run's own under that one folder (`oncebench.servers.small_disk`), and it
has room again when the act is over. Neither pipeline nor broker is started while its disk is full. A pipeline whose
sink is elsewhere may meet the next such fault before the broker has halted of this one: it then stands still until this
one is over. What can go wrong: nothing is written, or nothing that they miss, within the seconds, or another fault
kills them first; then the fault has tested nothing (`nemesis-idle`).
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from oncebench.faults.context import OVERTAKEN, Stage, waiting
from oncebench.faults.server import KAFKA
from oncebench.servers.small_disk import BALLAST, fill

# Folders of a run: Spark's checkpoint with our journal, what a sink that lives in files has written, and the topics of
# a broker that the run has to itself.
CHECKPOINT, OUTPUT, BROKER = "checkpoint", "sink", str(Path("broker", "kafka"))


def full(stage: Stage, seconds: float, *, folder: str) -> Generator[None]:
    """No byte is free until the pipeline has died of it, for so many seconds at most."""
    yield from _room(stage, folder)
    with stage.holding():
        ballast = fill(stage.config.record / folder)
        stage.note("disk-full", folder=folder)
        try:
            stage.go_on()
            yield from waiting(lambda: not stage.alive(), seconds)
        finally:
            ballast.unlink()
            stage.note("disk-has-room", folder=folder)
        if stage.alive():
            stage.idle("the pipeline lived on")
        elif stage.others():
            stage.idle(OVERTAKEN)


def full_broker(stage: Stage, seconds: float) -> Generator[None]:
    """No byte is free under the broker's topics until it has halted of it, for so many seconds at most; then there is
    room, and it is started again."""
    broker = stage.servers[KAFKA]
    yield from _room(stage, BROKER)
    with stage.holding():
        ballast = fill(stage.config.record / BROKER)
        stage.note("disk-full", folder=BROKER)
        try:
            stage.go_on()
            yield from waiting(lambda: not broker.alive, seconds)
            if broker.alive:
                stage.idle("the broker lived on")
            elif any(hit["action"] == "kill-broker" for hit in stage.others()):
                stage.idle(OVERTAKEN)
            else:
                stage.note("broker-halted")
        finally:
            ballast.unlink()
            stage.note("disk-has-room", folder=BROKER)
            broker.restart()
            stage.note("broker-back")


def _room(stage: Stage, folder: str) -> Generator[None]:
    """Waits for the end of a fault that has this disk full still; it would take what is filled now away with its own.
    That one ends by itself, at the end of its seconds if not before."""
    yield from waiting(lambda: not any((stage.config.record / folder).glob(f"{BALLAST}*")))
