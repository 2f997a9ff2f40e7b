"""Gives a Kafka client its addresses again, because librdkafka can forget all of them.

The fault: a broker that shuts down answers with an empty list of brokers if no other broker is alive. librdkafka 2.10
and newer then removes every broker that is not in the list (its issue 5301), and so all of them. A client without an
address never connects again, and no setting changes that:

- `metadata.recovery.strategy=none` never adds the bootstrap servers.
- `rebootstrap`, the default, adds them after a timer. The same answer often cancels the timer, and it never starts
  again. The timer of `metadata.recovery.rebootstrap.trigger.ms` starts with a request, for which there is no broker.

The remedy is `rd_kafka_brokers_add`, a public function of librdkafka. The client keeps its queue, its producer id and
its sequence numbers. So nothing is lost and nothing is written twice, as a new producer could not promise.

Not repaired: a transactional producer that adds offsets to its transaction. See `oncebench.sinks.kafka.rows.writers`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from oncebench.kafka_repair.librdkafka import function, handle_of

# `none`: with `rebootstrap`, a client without a connection forgets its brokers again and again. Each time it connects
# at once, without its backoff: 20 attempts and log lines a second while a broker is away. It also forgets which broker
# coordinates a group, and then waits without limit when it adds offsets to a transaction (librdkafka's issue 5511).
RECOVERY = {"metadata.recovery.strategy": "none"}
# A client with an address gets an answer within milliseconds, and connects again within a second or two.
SILENT_S = 5.0
# How often a flush looks for answers that have come.
LOOK_S = 1.0

_ADD = function("rd_kafka_brokers_add", ctypes.c_void_p, ctypes.c_char_p)


def add_addresses(client: Any, bootstrap_servers: str) -> None:
    """Gives a producer, consumer or admin client its bootstrap servers again.

    Call it while the client makes no progress. A client that has its addresses gets one too many, which it removes when
    it is next connected. A closed client is left alone.
    """
    handle = handle_of(client)
    if _ADD is not None and handle is not None:
        _ADD(handle, bootstrap_servers.encode())


class Repair:
    """Gives a client its addresses again each time that it makes no progress for SILENT_S.

    Args:
        client: a producer, consumer or admin client.
        clock: monotonic seconds.
    """

    def __init__(self, client: Any, bootstrap_servers: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._bootstrap_servers, self._clock = client, bootstrap_servers, clock
        self._seen: object = None
        self._since = clock()

    def look(self, progress: object) -> None:
        """Call it again and again while the client has something to wait for.

        Args:
            progress: a value that changes when an answer comes.
        """
        now = self._clock()
        if progress != self._seen:
            self._seen, self._since = progress, now
        elif now - self._since >= SILENT_S:
            self._since = now
            add_addresses(self._client, self._bootstrap_servers)


def flush(producer: Producer, bootstrap_servers: str, limit_s: float) -> int:
    """Sends the queued records and waits for the answers.

    Returns how many answers are missing after `limit_s` (in s).
    """
    repair = Repair(producer, bootstrap_servers)
    until = time.monotonic() + limit_s
    while True:
        left: int = producer.flush(max(0.0, min(LOOK_S, until - time.monotonic())))
        if not left or time.monotonic() >= until:
            return left
        repair.look(left)
