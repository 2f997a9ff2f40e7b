"""A fault in which too few replicas are there for a row, so Kafka refuses it.

Promise: at the end every broker is back, and every topic requires as many in-sync replicas as before.

Failure modes: those of `one_broker`. The pipeline has nothing to write meanwhile: the fault is idle. Kafka does not
take a topic's settings (`UserError`).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from oncebench.faults.context import FaultContext, pausing, waiting
from oncebench.faults.replicas.one_broker import back, disturbing, in_sync
from oncebench.faults.replicas.roles import GROUPS, TRANSACTIONS
from oncebench.faults.server import KAFKA
from oncebench.jobs.checkpoint import begun_at, open_batch
from oncebench.record import events

if TYPE_CHECKING:  # `oncebench list` runs without what starts a broker
    from oncebench.servers.kafka.cluster import KafkaCluster

MINIMUM = "min.insync.replicas"
# A batch that has been open for so long has tried to write, unless the machine is starved.
_WRITES_AFTER_S = 1.0


def refuse_writes(context: FaultContext, seconds: float) -> Generator[None]:
    """Keeps one broker away while the topics that the pipeline writes require every replica.

    The broker is away for `seconds`. The input topic still takes events.
    """
    cluster: KafkaCluster = context.servers[KAFKA]
    yield from waiting(lambda: not cluster.disturbed)
    if not (yield from in_sync(context, cluster)):
        context.resume_pipeline()
        return
    config, every = context.config, len(cluster.brokers)
    written = [str(config.output["output"]), config.quarantine_topic, *cluster.existing(TRANSACTIONS, GROUPS)]
    controller = cluster.controller()  # it stays: an election would only delay the refusals
    number = next(each for each in cluster.brokers if each != controller)
    with disturbing(cluster), ExitStack() as undone:  # a step that fails does not keep the others from being undone
        for topic in written:
            undone.callback(cluster.configure, topic, MINIMUM, str(every - 1))
            cluster.configure(topic, MINIMUM, str(every))
        cluster.brokers[number].kill()
        context.note(events.TOO_FEW_REPLICAS, broker=number, required=every)
        context.resume_pipeline()
        with context.server_away():
            yield from pausing(seconds)
        refused = _batch_waits(context)
        yield from back(context, number, cluster.brokers[number])
        yield from in_sync(context, cluster)
        if not refused:
            context.idle(f"no batch waited to be written after {seconds:g} s: make the fault longer than the trigger")


def _batch_waits(context: FaultContext) -> bool:
    """Whether a batch is open that cannot end, because Kafka refuses its writes.

    The refused writes are its rows, its marker or its commit. A batch counts when it has been open for _WRITES_AFTER_S
    seconds.
    """
    checkpoint = context.config.checkpoint
    batch = open_batch(checkpoint)
    return batch is not None and time.time() - (begun_at(checkpoint, batch) or 0.0) >= _WRITES_AFTER_S
