"""What is done to a disk: it is full from one step of a batch on, and has room again after a while.

Promise: what is filled is a small disk of the run's own under that one folder (`oncebench.services.small_disk`), and it
has room again when the act is over. The pipeline is not started while it is full. What can go wrong: nothing is
written, or nothing that the pipeline misses, within the seconds; then the fault has tested nothing (`nemesis-idle`).
"""

from __future__ import annotations

from collections.abc import Generator

from oncebench.nemesis.stage import Stage, waiting
from oncebench.services.small_disk import fill

# Folders of a run: Spark's checkpoint with our journal, and what a sink that lives in files has written.
CHECKPOINT, OUTPUT = "checkpoint", "sink"


def full(stage: Stage, seconds: float, *, folder: str) -> Generator[None]:
    """No byte is free until the pipeline has died of it, for so many seconds at most."""
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
