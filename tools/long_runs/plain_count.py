"""Compares an output with what was sent, without any code of the project.

The tool uses only confluent-kafka, psycopg and Python's own counters.

    python -I tools/long_runs/plain_count.py SENT kafka SERVERS TOPIC
    DSN=... python -I tools/long_runs/plain_count.py SENT postgres TABLE

Takes seconds. SENT is a file with one line per order: the value of its record, as Kafka acknowledged it. The topic is
read by a plain consumer with `isolation.level=read_committed`, the table by one SELECT. Exit codes:

- 0: each order is there once, and nothing else is.
- 1: the output cannot be read.
- 3: an order is lost or was never sent.
- 4: orders are duplicated, and none is lost.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from psycopg import sql

WRONG, DUPLICATED = 3, 4  # exit codes
ANSWER_S = 60.0  # for one request; a busy broker was seen to take 36 s


def count(sent: Iterable[str], read: Iterable[str]) -> dict[str, int]:
    """Returns how many orders were sent, read, lost, duplicated, or never sent."""
    expected, found = Counter(sent), Counter(read)
    return {
        "sent": expected.total(),
        "read": found.total(),
        "lost": sum(found[each] < times for each, times in expected.items()),
        "duplicated": sum(found[each] > times for each, times in expected.items()),
        "never sent": sum(each not in expected for each in found),
    }


def in_topic(servers: str, topic: str) -> Iterator[str]:
    """Yields the value of each record that a committed reader receives.

    The reader receives the records up to the first open transaction.
    """
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "plain-count", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    try:
        left = set(consumer.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        while left:
            message = consumer.poll(ANSWER_S)
            if message is None:
                raise SystemExit(f"{servers} sent nothing of {topic} for {ANSWER_S:g} s; partitions left: {left}")
            error = message.error()
            if error is None:
                yield (message.value() or b"").decode()
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise SystemExit(f"{topic} cannot be read: {error}")
    finally:
        consumer.close()


def in_table(dsn: str, table: str) -> Iterator[str]:
    """Yields each row of a table of orders, written as its order was sent."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(sql.SQL("SELECT order_id, cents FROM {}").format(sql.Identifier(table)))
        for order_id, cents in rows:
            yield json.dumps({"order_id": order_id, "cents": cents})


def main(sent: str, kind: str, *place: str) -> int:
    """Counts, prints one line, and returns the exit code."""
    read = in_topic(*place) if kind == "kafka" else in_table(os.environ["DSN"], *place)
    counted = count(Path(sent).read_text().splitlines(), read)
    print(f"{kind} {place[-1]}: " + ", ".join(f"{number:,} {name}" for name, number in counted.items()))
    if counted["lost"] or counted["never sent"]:
        return WRONG
    return DUPLICATED if counted["duplicated"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
