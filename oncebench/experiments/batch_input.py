"""Sends the events that `oncebench batches --events` reads.

Promise: all events are in the topic before the first batch. So no batch waits for the generator, and the generator
takes no CPU from a batch.
Failure: the generator failed (`UserError`). Check the room on the disk before (`bytes_needed`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from loadgen.session import EVENTS_PER_SESSION
from oncebench.errors import UserError
from oncebench.experiments.workspace import BASE_BYTES, BROKER_BYTES_PER_EVENT
from oncebench.home import HOME
from oncebench.lab.lab import Lab
from oncebench.processes import child as process

POLL_S = 0.1
LEDGER = "ledger"  # folder of the events that were sent
# In the work dir, per event: measured 39 bytes; a quarter is added.
LEDGER_BYTES_PER_EVENT = 50


def send_input(lab: Lab, folder: Path, partitions: int, events: int, interrupted: Callable[[], bool]) -> str:
    """Makes an input topic, and sends at least this many events to it, in whole sessions.

    Returns the topic.

    Args:
        lab: has the broker.
        folder: of the command; gets the generator's ledger and log.
        partitions: of the topic.
        events: that the batches need.
        interrupted: whether to stop.
    """
    topic = lab.kafka.create_topic(f"ob-{time.time_ns():x}.in", partitions)
    config = folder / "load.json"
    config.write_text(
        json.dumps(
            {
                **lab.kafka.access.as_json(),
                "topic": topic,
                "rate": "max",
                "sessions": -(-events // EVENTS_PER_SESSION),
                "ledger_dir": str(folder / LEDGER),
            }
        )
    )
    log = folder / "logs" / "load.log"
    command = [sys.executable, "-m", "loadgen", str(config)]
    with process.start("the load", command, log, cwd=HOME) as child:
        while child.alive and not interrupted():
            time.sleep(POLL_S)
    if not interrupted() and child.returncode != 0:
        raise UserError(f"the load failed with exit code {child.returncode}. See {log}")
    return topic


def bytes_needed(events: int, own_kafka: bool) -> int:
    """Returns the disk space that the work dir needs for so many events.

    `own_kafka`: whether the topics are in a Kafka of the suite, so in the work dir.
    """
    return BASE_BYTES + events * (LEDGER_BYTES_PER_EVENT + own_kafka * BROKER_BYTES_PER_EVENT)
