"""A demonstrator: an unclean leader election, which loses rows that Kafka has acknowledged.

No guarantee survives this fault, because the loss is Kafka's own: a replica without the newest records becomes the
leader, and the other replicas drop those records. Kafka's default prevents it (`unclean.leader.election.enable=false`).

Promise: only partition 0 of the output topic loses records. At the end every broker is back, and the topic has its
settings and its replicas again.

Failure modes: those of `one_broker`. Kafka does not take a setting or the new replicas (`UserError`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack

from oncebench.delivery.topics.replicas import UNCLEAN
from oncebench.faults.context import FaultContext, waiting
from oncebench.faults.replicas.one_broker import ANSWER_S, LIMIT_S, Leader, back, disturbing, find, note, now_and_then
from oncebench.faults.replicas.roles import OUTPUT_LEADER
from oncebench.faults.replicas.too_few import MINIMUM
from oncebench.record import events


def unclean_election(context: FaultContext, _seconds: float) -> Generator[None]:
    """Lets a replica that was away lead partition 0 of the output topic.

    The partition gets two replicas, so the third broker keeps the quorum of controllers. One replica is killed. The
    other one takes rows alone, and is killed too. The first one then comes back, and leads without these rows.
    """
    if (leader := (yield from find(context, OUTPUT_LEADER))) is None:
        return
    cluster, place = leader.cluster, leader.place
    # Not the active controller: an election of controllers would only take time.
    controller = cluster.controller()
    behind = min((each for each in cluster.brokers if each != leader.number), key=lambda each: each == controller)
    with ExitStack() as undone, disturbing(cluster):
        undone.callback(cluster.reassign, *place, tuple(cluster.brokers))
        for name, value, before in ((MINIMUM, "1", str(len(cluster.brokers) - 1)), (UNCLEAN, "true", "false")):
            undone.callback(cluster.configure, place.topic, name, before)
            cluster.configure(place.topic, name, value)
        cluster.reassign(*place, (leader.number, behind))
        if not (yield from _in_sync(context, leader, {leader.number, behind})):
            return
        cluster.brokers[behind].kill()
        context.note(events.REPLICA_KILLED, broker=behind)
        if not (yield from _in_sync(context, leader, {leader.number})):
            return
        if (end := (yield from _takes_rows_alone(context, leader))) is None:
            return
        leader.broker.kill()
        note(context, events.LEADER_KILLED, leader)
        yield from _lead_without_rows(context, leader, behind, end)


def _in_sync(context: FaultContext, leader: Leader, replicas: set[int]) -> Generator[None, None, bool]:
    """Waits until exactly these replicas are in sync, and returns whether that was in time.

    If it takes too long, the fault is recorded as idle.
    """
    place = leader.place
    look = now_and_then(lambda: leader.cluster.in_sync_replicas(*place, timeout_s=ANSWER_S) == replicas)
    if (yield from waiting(look, LIMIT_S)):
        return True
    context.idle(f"the replicas in sync did not become {sorted(replicas)} within {LIMIT_S:g} s")
    return False


def _takes_rows_alone(context: FaultContext, leader: Leader) -> Generator[None, None, int | None]:
    """Continues the pipeline until a committed reader sees new rows.

    Returns the end of the log that the reader sees; None and idle without new rows.
    """
    before = leader.cluster.committed_end(*leader.place)
    context.resume_pipeline()
    grown = now_and_then(lambda: leader.cluster.committed_end(*leader.place) > before)
    if (yield from waiting(grown, LIMIT_S)):
        return leader.cluster.committed_end(*leader.place)
    context.idle(f"no row was committed within {LIMIT_S:g} s while the leader was alone")
    return None


def _lead_without_rows(context: FaultContext, leader: Leader, behind: int, end: int) -> Generator[None]:
    """Starts the replica that was away, and the killed leader when the replica leads."""
    cluster, place = leader.cluster, leader.place
    with context.server_away():
        yield from back(context, behind, cluster.brokers[behind])
        leads = now_and_then(lambda: cluster.leader_without(leader.number, *place, timeout_s=ANSWER_S) == behind)
        if (yield from waiting(leads, LIMIT_S)):
            context.note(events.LEADER_UNCLEAN, broker=behind, lost_offsets=end - cluster.committed_end(*place))
        else:
            context.idle(f"broker {behind} did not lead within {LIMIT_S:g} s")
    yield from back(context, leader.number, leader.broker)
