"""The one place that uses private names of kafka-python.

kafka-python has no public call that sends a request to a transaction's coordinator or to a partition's leader.
`connect` checks that every private name exists, so an upgrade that renames one is refused at the start of the pipeline.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import version
from operator import attrgetter, itemgetter
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.errors import AuthorizationError, KafkaError
from kafka.protocol.metadata import CoordinatorType
from kafka.structs import TopicPartition

from oncebench.delivery.errors import RefusedStart

Codes = Collection[int | None]
Answers = dict[int, int | None]

NONE = 0  # Kafka's error code of an answer without an error
TESTED_VERSION = "3.0.12"
# A commit sends a request per partition at once. With kafka-python's default of 5, it refuses the others unsent, which
# looks like a lost answer: their transactional ids were fenced, and the next batch made new producers.
IN_FLIGHT = 100_000
# The broker that leads a partition of it coordinates the transactions in that partition.
TRANSACTIONS_TOPIC = "__transaction_state"
PRIVATE_NAMES = (
    "_manager.run",
    "_manager.send",
    "_manager.call_soon",
    "_manager.wait_for",
    "_manager.cluster._coordinators",
    "_manager.cluster.refresh_metadata",
    "_find_coordinator_ids",
    "_async_get_leader_for_partitions",
)


class _Client(KafkaAdminClient):  # type: ignore[misc]  # mypy sees no types of kafka-python
    """A client that leaves no thread behind if it reaches no cluster.

    The client of kafka-python tries on for ever.
    """

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except KafkaError:
            if hasattr(self, "_net"):
                self._closed = False  # without it `close` takes the client for closed
                self.close()
            raise


def connect(settings: Mapping[str, Any]) -> KafkaAdminClient:
    """Returns a client whose private names were checked.

    Raises:
        KafkaError: the cluster cannot be reached.
        RefusedStart: see `check_client`.
    """
    admin = _Client(max_in_flight_requests_per_connection=IN_FLIGHT, **settings)
    try:
        check_client(admin)
    except RefusedStart:
        admin.close()
        raise
    return admin


def check_client(admin: Any) -> None:
    """Raises RefusedStart if kafka-python lacks a private name that this module uses."""
    for name in PRIVATE_NAMES:
        try:
            attrgetter(name)(admin)
        except AttributeError:
            raise RefusedStart(
                f"kafka-python {version('kafka-python')} has no `{name}`, which the Kafka sink needs. Install the "
                f"version that was tested: pip install kafka-python=={TESTED_VERSION}"
            ) from None


def ask_coordinators(
    admin: Any, requests: Mapping[int, Any], ids: Mapping[int, str], stale: Codes, limit_s: float
) -> Answers:
    """Sends each request to the coordinator of its transactional id, all in flight at once.

    Returns the error codes, None where no answer came within `limit_s`, the look-up of the coordinators included. A
    request without an answer may still arrive. After an answer in `stale` the next request looks the coordinator up
    again.
    """
    deadline = time.monotonic() + limit_s
    answers: Answers = admin._manager.run(_ask_coordinators, admin, requests, ids, stale, deadline)
    return answers


async def _ask_coordinators(
    admin: Any, requests: Mapping[int, Any], ids: Mapping[int, str], stale: Codes, deadline: float
) -> Answers:
    manager = admin._manager
    find = manager.call_soon(admin._find_coordinator_ids, list(ids.values()), CoordinatorType.TRANSACTION)
    try:
        nodes = await _by(deadline, manager, find)
    except AuthorizationError as error:  # it stays, unlike every other failed look-up
        return dict.fromkeys(requests, error.errno)
    except KafkaError:
        return dict.fromkeys(requests)
    sent = {at: manager.send(request, node_id=nodes[ids[at]]) for at, request in requests.items()}
    answers: Answers = {}
    for at, future in sent.items():
        try:
            answers[at] = (await _by(deadline, manager, future)).error_code
        except KafkaError:
            answers[at] = None
    for at, code in answers.items():
        if code in stale:
            manager.cluster._coordinators.pop((CoordinatorType.TRANSACTION, ids[at]), None)
    return answers


async def _by(deadline: float, manager: Any, future: Any) -> Any:
    """Waits for a result until `deadline` (monotonic clock), then raises KafkaTimeoutError."""
    return await manager.wait_for(future, max(0.0, deadline - time.monotonic()) * 1000)


def ask_coordinator(admin: Any, request: Any, kind: CoordinatorType, key: str) -> Any:
    """Sends a request to the coordinator of a group or transactional id; returns the answer.

    Looks the coordinator up first.

    Raises:
        KafkaError: there is no coordinator, or no answer.
    """
    forget_coordinators(admin)
    return admin._manager.run(_ask_coordinator, admin, request, kind, key)


async def _ask_coordinator(admin: Any, request: Any, kind: CoordinatorType, key: str) -> Any:
    nodes = await admin._find_coordinator_ids([key], key_type=kind)
    return await admin._manager.send(request, node_id=nodes[key])


def forget_coordinators(admin: Any) -> None:
    """Makes the next request look its coordinator up again."""
    admin._manager.cluster._coordinators.clear()


def refresh_brokers(admin: Any) -> None:
    """Asks the cluster for its brokers. Without an answer the client keeps those that it knows."""
    with suppress(KafkaError):
        admin._manager.run(admin._manager.cluster.refresh_metadata)


def transaction_leaders(admin: Any) -> list[tuple[int, int]]:
    """Returns leader (-1: none) and epoch of each partition of Kafka's transaction topic.

    In this topic, coordinators keep transactions. Empty: there is no such topic yet, or this user may not describe it.

    Raises:
        KafkaError: no answer.
    """
    (topic,) = admin.describe_topics([TRANSACTIONS_TOPIC])
    partitions = sorted(topic["partitions"], key=itemgetter("partition_index"))
    return [(partition["leader_id"], partition["leader_epoch"]) for partition in partitions]


def ask_leader(admin: Any, request: Any, topic: str, partition: int) -> Any:
    """Sends a request to the leader of a partition and returns the answer. Raises KafkaError."""
    return admin._manager.run(_ask_leader, admin, request, TopicPartition(topic, partition))


async def _ask_leader(admin: Any, request: Any, place: TopicPartition) -> Any:
    leader = next(iter(await admin._async_get_leader_for_partitions([place])))
    return await admin._manager.send(request, node_id=leader)
