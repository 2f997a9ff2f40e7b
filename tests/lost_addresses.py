"""Makes clients of a real broker lose every address, as they may when the broker shuts down."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from confluent_kafka import KafkaException

from oncebench.servers.kafka.broker import KafkaBroker

# A broker answers without brokers for some milliseconds of its shutdown: one shutdown is nearly always enough.
SHUTDOWNS = 8
PAUSE_S = 0.001
# Threads per client that ask. On an overloaded machine one thread often asks nothing in those milliseconds.
ASKING = 4
# A client that has an address connects again within a second or two.
HEALTHY_S = 6.0


def lose_addresses(
    kafka: KafkaBroker, topic: str, clients: Sequence[Any], has_lost: Callable[[Any], bool] | None = None
) -> None:
    """Shuts the broker down and starts it again, until each client has lost its addresses.

    Args:
        has_lost: whether a client has; by default, whether it gets no answer from the broker that is back.
    """
    left = list(clients)
    for _ in range(SHUTDOWNS):
        gone = Event()
        asking = [Thread(target=_ask, args=(each, topic, gone), daemon=True) for each in left for _ in range(ASKING)]
        for thread in asking:
            thread.start()
        kafka.stop()
        gone.set()
        for thread in asking:
            thread.join(30)
        kafka.start()
        left = [each for each in left if not (has_lost or _is_silent)(each)]
        if not left:
            return
    raise AssertionError(f"{len(left)} of {len(clients)} clients have kept an address")


def _ask(client: Any, topic: str, gone: Event) -> None:
    """Asks for the topic until the broker is gone.

    One of the answers is that there are no brokers.
    """
    while not gone.is_set():
        with suppress(KafkaException):
            client.list_topics(topic, timeout=1.0)
        time.sleep(PAUSE_S)


def _is_silent(client: Any) -> bool:
    try:
        client.list_topics(timeout=HEALTHY_S)
    except KafkaException:
        return True
    return False
