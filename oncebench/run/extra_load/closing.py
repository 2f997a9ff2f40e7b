"""Sends the events that close the last windows, after the load.

Spark returns a window in the batch after the one that moved the watermark beyond the window's end. A run has no batches
without data (`configs.NO_EMPTY_BATCHES`), and a restarted query has none before new data comes. Therefore the run sends
one event that moves the watermark, waits until it is read, and sends another one. If the pipeline was restarted in
between, it begins again: a sink that skips the replay of a batch (Delta's own) hides the times of the batch's events.

Promise: all of these events have one event time, so none of them closes the window of another. These windows stay
open, and the audit expects no rows of them.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event

from oncebench.kafka_access.access import KafkaAccess
from oncebench.run.extra_load.warm_up import WARM_UP_BATCHES, send_sessions

CLOSING_EVENTS = 2  # in a row without a restart
# Beyond the seeds of the warm-up and of the open sessions.
FIRST_SEED = WARM_UP_BATCHES + 1


def send_closing(
    kafka: KafkaAccess, topic: str, folder: Path, number: int, at_us: int, stop: Event | None = None
) -> int:
    """Sends closing event `number`; returns the number of acknowledged events.

    Args:
        at_us: the event time of all closing events of the run, in epoch µs. It is later than every event of the load
            by the watermark's delay and a window.
        stop: see `send_sessions`.
    """
    ledger = folder / "warm-up" / f"closing-{number}"
    return send_sessions(kafka, topic, ledger, 1, FIRST_SEED + number, 1, stop=stop, started_us=at_us)
