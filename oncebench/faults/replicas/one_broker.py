"""Faults of one broker of several: of the leader of a partition, and of each broker in turn.

Promise: at most one broker is away. A fault waits for the end of every other such fault, and until all replicas are in
sync; the pipeline is stopped meanwhile. While the broker is away the pipeline runs, and a pipeline that dies is
restarted. When the fault ends, or the run ends first, every broker is back.

Failure modes: the role has no partition yet, the leadership does not move, or replicas do not catch up within
LIMIT_S: the fault is idle. A broker does not start (`UserError`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from oncebench.faults.context import FaultContext, pausing, waiting
from oncebench.faults.replicas.roles import Place, Role
from oncebench.faults.server import KAFKA
from oncebench.record import events

if TYPE_CHECKING:  # `oncebench list` runs without what starts a broker
    from oncebench.servers.kafka.broker import KafkaBroker
    from oncebench.servers.kafka.cluster import KafkaCluster

# How long Kafka may take to move a leadership, to end or start a broker, or to copy what a broker has missed. A session
# ends after 9 s, and the election of a controller takes up to 3 s more; a busy machine takes several times as long.
LIMIT_S = 300.0
T = TypeVar("T")
_LOOK_S = 0.25  # between two looks at Kafka's metadata
ANSWER_S = 2.0  # a healthy broker answers in milliseconds; the supervisor waits meanwhile


@dataclass(frozen=True)
class Leader:
    """The broker that has a role, and the partition that gives the role to it."""

    cluster: KafkaCluster
    place: Place
    number: int
    controller: bool

    @property
    def broker(self) -> KafkaBroker:
        return self.cluster.brokers[self.number]

    def successor(self) -> int | None:
        """The broker that leads the partition instead, as another broker sees it."""
        found = self.cluster.other_than(self.number).leader(*self.place, timeout_s=ANSWER_S)
        return None if found == self.number else found

    def successor_by_the_others(self) -> int | None:
        """As `successor`, while this broker answers too, with its own view."""
        found = self.cluster.leader_without(self.number, *self.place, timeout_s=ANSWER_S)
        return None if found == self.number else found


def kill_leader(context: FaultContext, _seconds: float, role: Role) -> Generator[None]:
    """Kills the broker with the role. Starts it again when the partition has another leader."""
    if (leader := (yield from find(context, role))) is None:
        return
    with disturbing(leader.cluster):
        leader.broker.kill()
        note(context, events.LEADER_KILLED, leader)
        context.resume_pipeline()
        yield from _fail_over(context, leader)


def bounce_leader(context: FaultContext, _seconds: float, role: Role) -> Generator[None]:
    """Shuts the broker with the role down cleanly, while the pipeline runs, and starts it again."""
    if (leader := (yield from find(context, role))) is None:
        return
    with disturbing(leader.cluster):
        note(context, events.LEADER_ENDS, leader)
        context.resume_pipeline()
        yield from _end(leader.broker)
        yield from _fail_over(context, leader)


def stop_leader(context: FaultContext, seconds: float, role: Role) -> Generator[None]:
    """Stops the broker with the role for `seconds`.

    Its connections stay open, and nothing answers.
    """
    if (leader := (yield from find(context, role))) is None:
        return
    with disturbing(leader.cluster):
        successor: int | None = None
        try:
            leader.broker.pause()
            note(context, events.LEADER_STOPPED, leader)
            context.resume_pipeline()
            with context.server_away():
                successor = yield from _leader_within(seconds, leader.successor)
        finally:
            leader.broker.resume()
            context.note(events.LEADER_CONTINUED, broker=leader.number, **_moved(successor))
        _idle_without(successor, context, seconds)
        yield from in_sync(context, leader.cluster)


def isolate_leader(context: FaultContext, seconds: float, role: Role) -> Generator[None]:
    """Cuts the broker with the role off from the other brokers for `seconds`.

    Clients still reach every broker. The fault ends when every broker has the same view of the cluster, and sees every
    replica in sync.
    """
    if (leader := (yield from find(context, role))) is None:
        return
    cluster = leader.cluster
    assert cluster.network is not None, "`lab.broker` starts separable brokers for a run with this fault"
    with disturbing(cluster):
        with cluster.network.cut(leader.number):
            note(context, events.LEADER_ISOLATED, leader)
            context.resume_pipeline()
            with context.server_away():
                successor = yield from _leader_within(seconds, leader.successor_by_the_others)
        context.note(events.LEADER_RECONNECTED, broker=leader.number, **_moved(successor))
        _idle_without(successor, context, seconds)
        if not (yield from waiting(now_and_then(lambda: cluster.agrees(ANSWER_S)), LIMIT_S)):
            context.idle(f"the brokers did not agree within {LIMIT_S:g} s")


def rolling_restart(context: FaultContext, _seconds: float) -> Generator[None]:
    """Restarts every broker cleanly, the next one when all replicas are in sync again."""
    cluster: KafkaCluster = context.servers[KAFKA]
    yield from waiting(lambda: not cluster.disturbed)
    with disturbing(cluster):
        context.resume_pipeline()
        for number, broker in cluster.brokers.items():
            if not (yield from in_sync(context, cluster)):
                return
            context.note(events.BROKER_ENDS, broker=number)
            yield from _end(broker)
            yield from back(context, number, broker)
        yield from in_sync(context, cluster)


@contextmanager
def disturbing(cluster: KafkaCluster) -> Iterator[None]:
    """No other fault takes a broker away inside this block. At its end every broker runs."""
    cluster.disturbed = True
    try:
        yield
    finally:
        cluster.start()
        cluster.disturbed = False


def find(context: FaultContext, role: Role) -> Generator[None, None, Leader | None]:
    """The broker that has the role at this moment. Idle and None without one."""
    cluster: KafkaCluster = context.servers[KAFKA]
    yield from waiting(lambda: not cluster.disturbed)
    if (yield from in_sync(context, cluster)):
        place = role.place(context)
        number = None if place is None else cluster.leader(*place)
        if place is not None and number is not None:
            return Leader(cluster, place, number, cluster.controller() == number)
        context.idle(f"no broker is {role.description}")
    context.resume_pipeline()
    return None


def _fail_over(context: FaultContext, leader: Leader) -> Generator[None]:
    """Waits until another broker leads the partition, then starts the one that is away."""
    with context.server_away():
        successor = yield from waiting(now_and_then(leader.successor), LIMIT_S)
    if successor is None:
        context.idle(f"partition {leader.place.partition} of {leader.place.topic} got no other leader")
        return
    context.note(events.LEADER_MOVED, broker=successor)
    yield from back(context, leader.number, leader.broker)
    yield from in_sync(context, leader.cluster)


def _leader_within(seconds: float, successor: Callable[[], int | None]) -> Generator[None, None, int | None]:
    """Yields until the seconds have passed; returns the broker that led meanwhile, or None."""
    end = time.monotonic() + seconds
    found = yield from waiting(now_and_then(successor), seconds)
    yield from pausing(end - time.monotonic())
    return found


def _moved(successor: int | None) -> dict[str, int]:
    return {} if successor is None else {"moved_to": successor}


def _idle_without(successor: int | None, context: FaultContext, seconds: float) -> None:
    if successor is None:
        context.idle(f"no other broker led within {seconds:g} s: make the fault longer than a broker's session, 9 s")


def _end(broker: KafkaBroker) -> Generator[None]:
    """Shuts a broker down cleanly while the run goes on."""
    broker.begin_stop()
    yield from waiting(lambda: not broker.alive, LIMIT_S)
    broker.stop()


def back(context: FaultContext, number: int, broker: KafkaBroker) -> Generator[None]:
    """Starts a broker while the run goes on."""
    broker.begin_start()
    yield from waiting(lambda: broker.serves, LIMIT_S)
    broker.wait_until_serving()
    context.note(events.BROKER_BACK, broker=number)


def in_sync(context: FaultContext, cluster: KafkaCluster) -> Generator[None, None, bool]:
    """Waits until every replica is in sync, and returns whether that was in time.

    If it takes too long, the fault is recorded as idle.
    """
    if (yield from waiting(now_and_then(lambda: cluster.in_sync(ANSWER_S)), LIMIT_S)):
        return True
    context.idle(f"the replicas were not in sync within {LIMIT_S:g} s")
    return False


def note(context: FaultContext, event: str, leader: Leader) -> None:
    topic, partition = leader.place
    run = context.config.sink_id  # the topic's prefix is new in each run, and would only lengthen the line
    controller = {"controller": True} if leader.controller else {}
    context.note(event, broker=leader.number, leads=f"{topic.removeprefix(f'{run}.')}-{partition}", **controller)


def now_and_then(condition: Callable[[], T]) -> Callable[[], T | None]:
    """Evaluates a condition only every _LOOK_S seconds: the supervisor asks far more often.

    Between two evaluations, the returned function returns None.
    """
    looked = -_LOOK_S

    def look() -> T | None:
        nonlocal looked
        if time.monotonic() < looked + _LOOK_S:
            return None
        found = condition()
        looked = time.monotonic()
        return found

    return look
