"""Faults in which too few replicas have a row: Kafka refuses it, or acknowledges a row and forgets it.

Promise: at the end every broker is back, and every topic requires as many in-sync replicas as before.

Failure modes: those of `replicas`. Kafka does not take a topic's settings (`UserError`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from oncebench.faults.context import FaultContext, pausing, waiting
from oncebench.faults.replicas import LIMIT_S, back, disturbing, in_sync, now_and_then
from oncebench.faults.roles import GROUPS, OUTPUT_LEADER, TRANSACTIONS
from oncebench.faults.server import KAFKA

if TYPE_CHECKING:  # `oncebench list` runs without what starts a broker
    from oncebench.servers.kafka.cluster import KafkaCluster

MINIMUM, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
# Batches that the leader alone must take before it is killed: nearly every batch has rows in each partition.
ALONE_BATCHES = 3


def refuse_writes(context: FaultContext, seconds: float) -> Generator[None]:
    """Keeps one broker away for `seconds`, while the topics that the pipeline writes require every replica.

    The input topic still takes events.
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
    with disturbing(cluster):
        try:
            for topic in written:
                cluster.configure(topic, MINIMUM, str(every))
            cluster.brokers[number].kill()
            context.note("too-few-replicas", broker=number, required=every)
            context.resume_pipeline()
            with context.server_away():
                yield from pausing(seconds)
            yield from back(context, number, cluster.brokers[number])
            yield from in_sync(context, cluster)
        finally:
            for topic in written:
                cluster.configure(topic, MINIMUM, str(every - 1))


def elect_unclean(context: FaultContext, _seconds: float) -> Generator[None]:
    """Makes a replica the leader of the output topic's partition 0 that lacks its newest rows. These are lost.

    The partition gets two replicas, and a row needs only one of them. The follower is killed, the leader takes some
    batches alone and is killed too, and the follower comes back as leader (`unclean.leader.election.enable`).
    """
    cluster: KafkaCluster = context.servers[KAFKA]
    yield from waiting(lambda: not cluster.disturbed)
    place = OUTPUT_LEADER.place(context)
    leader = cluster.leader(*place) if place is not None and (yield from in_sync(context, cluster)) else None
    if place is None or leader is None:
        context.resume_pipeline()
        return
    controller = cluster.controller()  # it stays, so that every election has a controller
    others = [number for number in cluster.brokers if number != leader]
    follower = next((number for number in others if number != controller), others[0])
    with disturbing(cluster):
        cluster.configure(place.topic, MINIMUM, "1")
        cluster.configure(place.topic, UNCLEAN, "true")
        cluster.reassign(*place, [leader, follower])
        yield from waiting(now_and_then(lambda: cluster.replicas(*place) == {leader, follower}), LIMIT_S)
        yield from in_sync(context, cluster)
        cluster.brokers[follower].kill()
        context.note("follower-killed", broker=follower)
        context.resume_pipeline()
        with context.server_away():
            yield from waiting(lambda: _batches_after(context) >= ALONE_BATCHES, LIMIT_S)
            if _batches_after(context) < ALONE_BATCHES:
                context.idle(f"no {ALONE_BATCHES} batches were committed without the follower")
                return
            cluster.brokers[leader].kill()
            context.note("leader-killed", broker=leader)
            cluster.brokers[follower].begin_start()
            seen = cluster.brokers[follower]
            yield from waiting(now_and_then(lambda: seen.leader(*place, timeout_s=2.0) == follower), LIMIT_S)
            moved = seen.leader(*place, timeout_s=2.0) == follower
        if not moved:
            context.idle("the replica without the newest rows was not elected")
            return
        context.note("leader-moved", broker=follower)
        yield from back(context, leader, cluster.brokers[leader])
        yield from in_sync(context, cluster)


def _batches_after(context: FaultContext) -> int:
    """Batches after that of this fault that the newest attempt has committed."""
    return sum(line["batch"] > context.batch for line in context.control.batches())
