"""Reads topics and outputs to their end.

A read that does not reach the end fails: it is not an empty read.
"""

from __future__ import annotations

import time
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from oncebench.sinks.reader import Reader, Rows
from tests.waiting import wait_for

# How long a read waits for open transactions: the default time-out of a transaction (60 s), the interval at which a
# broker ends old ones (10 s), and some margin.
SETTLE_S = 90.0
SILENCE_S = 30.0  # a broker answers within milliseconds, and within seconds after its restart


def read_all(reader: Reader, settle_s: float = 0.0) -> Rows:
    """Returns every row that a reader of the project sees, and closes the reader.

    `settle_s` is how long to wait for open transactions to end.
    """
    found = Rows()
    with closing(reader):
        report = reader.read_to_end(lambda rows: extend(found, rows), settle_s=settle_s, idle_s=SILENCE_S)
    assert report.complete, report.note
    return found


def extend(into: Rows, rows: Rows) -> None:
    """Adds rows to the columns of others."""
    for name in ("partition", "offset", "append_ms", "key", "value", "headers"):
        getattr(into, name).extend(getattr(rows, name))


def committed_records(servers: str, topic: str) -> list[Message]:
    """Returns a topic's committed records, read by a plain consumer.

    It uses none of the project's own readers.
    """
    settings = {"bootstrap.servers": servers, "group.id": "count", "enable.auto.commit": False, "log_level": 0}
    with closing(Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})) as consumer:
        # A broker that has just started does not know its topics yet.
        wait_for(f"topic {topic}", lambda: consumer.list_topics(topic, SILENCE_S).topics[topic].error is None)
        left = set(consumer.list_topics(topic, SILENCE_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        records: list[Message] = []
        heard = time.monotonic()
        while left:
            message = consumer.poll(1.0)
            error = None if message is None else message.error()
            if message is not None and error is None:
                records.append(message)
                heard = time.monotonic()
            elif message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
                heard = time.monotonic()
            else:
                silent = f"{topic}: nothing came for {SILENCE_S:g} s, partitions {left} have not ended ({error})"
                assert time.monotonic() - heard < SILENCE_S, silent
    return records
