"""Measures the cost of transactions in Kafka's clients alone, without Spark.

    python -m tools.producers [ROUNDS]

Takes about seven minutes with 7 rounds on two cores; starts a broker of its own on loopback.

It checks three published claims, which compare:

- producers with short transactions, and producers without transactions;
- a transaction per message, and a flush with a commit of offsets;
- `read_committed` readers, and `read_uncommitted` readers.

The compared clients take turns, and every second round has the reverse order. The tool prints medians over the rounds.
It also prints the median of the ratios within a round, with its 95 % interval.

Limits: client (librdkafka) and broker share the processors. A commit first sends all queued records, so transactions
last longer than planned; the tool prints how long. Both readers read a topic with committed transactions only. The cost
of aborted transactions, and the wait of a `read_committed` reader for an open one, are not measured.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from oncebench.downloads.java import find_java
from oncebench.lab.lab import own_kafka
from oncebench.report.comparisons.paired import median_interval
from oncebench.servers.kafka.broker import KafkaBroker

RECORD = bytes(1000)
PRODUCE_S = 4.0  # per arm and round; a broker reaches its speed within the first second
TRANSACTION_S = 0.1  # the commit interval in the published claims
MESSAGES = 300  # transactions of one message each, per arm and round
SESSION_ROWS, BATCH_ROWS = 20, 1000  # rows of a session, and of a typical batch
READ_RECORDS = 200_000
FILL_TRIES = 15  # of PRODUCE_S each: a machine below 3,300 records/s is too slow to measure
# A topic holds 0.4 GB after 4 s at 100,000 records/s. By default Kafka keeps a deleted topic's files for a minute.
QUICK_DELETE = {"file.delete.delay.ms": "1000"}
PLAIN = {"linger.ms": 5, "queue.buffering.max.messages": 100_000, "enable.idempotence": False}
# The producer's settings by guarantee.
ARMS: Mapping[str, dict[str, Any]] = {
    "at-most-once": PLAIN | {"acks": 1, "max.in.flight.requests.per.connection": 5},
    "at-least-once": PLAIN | {"acks": "all", "max.in.flight.requests.per.connection": 1},
    "exactly-once": {"linger.ms": 5, "queue.buffering.max.messages": 100_000, "transactional.id": "producers"},
}
# The next transaction starts while the broker still writes the markers of the last one, so the client has to retry. Its
# default backoff of 100 ms would then dominate the figure.
QUICK = {"retry.backoff.ms": 1}
Figures = dict[str, list[float]]


@dataclass(frozen=True)
class Produced:
    """The result of a producer: records, transactions (0: none were used), and seconds."""

    records: int
    commits: int
    took_s: float


def produced(kafka: KafkaBroker, topic: str, settings: Mapping[str, Any]) -> Produced:
    """Sends records of 1 kB for PRODUCE_S, then waits until the last one is acknowledged.

    With a transactional id, a transaction is committed once it has been open for TRANSACTION_S.

    Raises:
        SystemExit: records were not acknowledged in time.
    """
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    transactional = "transactional.id" in settings
    if transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    began, sent, commits = time.monotonic(), 0, 0
    commit_at = began + TRANSACTION_S
    while (now := time.monotonic()) < began + PRODUCE_S:
        if transactional and now >= commit_at:
            producer.commit_transaction(30)
            commits += 1
            producer.begin_transaction()
            commit_at = time.monotonic() + TRANSACTION_S
        for _ in range(100):
            try:
                producer.produce(topic, RECORD)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if transactional:
        producer.commit_transaction(30)
        commits += 1
    if left := producer.flush(30):
        raise SystemExit(f"{left} records were not acknowledged within 30 s. Check the broker's log")
    return Produced(sent, commits, time.monotonic() - began)


def produced_per_s(kafka: KafkaBroker, settings: Mapping[str, Any], intervals_ms: list[float]) -> float:
    """Records of 1 kB per second into a new topic.

    With transactions, appends the mean duration of one to `intervals_ms`.
    """
    topic = kafka.fresh_topic("speed", 1, QUICK_DELETE)
    done = produced(kafka, topic, settings)
    admin = kafka.admin()  # it must exist until the answer arrives
    admin.delete_topics([topic])[topic].result(30)
    intervals_ms += [done.took_s * 1000 / done.commits] if done.commits else []
    return done.records / done.took_s


def fill(kafka: KafkaBroker, topic: str) -> None:
    """Sends transactions to a topic until it holds READ_RECORDS records.

    Raises:
        SystemExit: the machine is too slow for that.
    """
    held = 0
    for _ in range(FILL_TRIES):
        held += produced(kafka, topic, ARMS["exactly-once"]).records
        if held >= READ_RECORDS:
            return
    raise SystemExit(f"{held:,} records were sent in {FILL_TRIES * PRODUCE_S:.0f} s, but the measurement reads "
                     f"{READ_RECORDS:,}. Use a quieter machine")  # fmt: skip


def ms_per_step(kafka: KafkaBroker, topic: str, rows: int, settings: Mapping[str, Any] | None) -> float:
    """The median time, in ms, to make `rows` records and the offset of their input durable.

    Steps follow each other at once. `settings`: of a transaction for each step; None: no transaction.
    """
    transactional = settings is not None
    group = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "producers", "enable.auto.commit": False}
    consumer = Consumer(group)
    consumer.assign([TopicPartition(topic, 0, 0)])
    own = {"acks": "all"} if settings is None else {"transactional.id": "steps", **settings}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, **own})
    if transactional:
        producer.init_transactions(30)
    took: list[float] = []
    for number in range(MESSAGES if rows == 1 else MESSAGES // 5):
        offsets = [TopicPartition(topic, 0, number + 1)]
        began = time.perf_counter()
        if transactional:
            producer.begin_transaction()
        for _ in range(rows):
            producer.produce(topic, RECORD[:200])
        if transactional:
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            consumer.commit(offsets=offsets, asynchronous=False)
        took.append((time.perf_counter() - began) * 1000)
    consumer.close()
    return median(took)


def read_per_s(kafka: KafkaBroker, topic: str, level: str) -> float:
    """Returns one reader's records per second at an isolation level.

    The time counts from the first record to READ_RECORDS.
    """
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": "reads", "isolation.level": level,
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    while not (first := consumer.consume(1, 30)):
        raise SystemExit("the first record did not arrive within 30 s")
    began, count = time.monotonic(), len(first)
    while count < READ_RECORDS:
        messages = consumer.consume(1000, 30)
        if not messages:
            raise SystemExit(f"{count} of {READ_RECORDS} records arrived, then none for 30 s")
        count += len(messages)
    took_s = time.monotonic() - began
    consumer.close()
    return count / took_s


def in_turns(rounds: int, arms: Mapping[str, Callable[[], float]]) -> Figures:
    """Measures each arm in each round, after one round that does not count."""
    found: Figures = {name: [] for name in arms}
    for number in range(-1, rounds):
        for name in list(arms) if number % 2 else list(arms)[::-1]:
            figure = arms[name]()
            if number >= 0:
                found[name].append(figure)
    return found


def print_table(title: str, figures: Figures, baseline: str) -> None:
    """Prints a table: the medians, and the ratios to the arm `baseline`."""
    print(f"\n{title}\n\n| arm | median | x {baseline} (95 %) |\n| --- | ---: | ---: |")
    for name, values in figures.items():
        ratio = median_interval([mine / theirs for mine, theirs in zip(values, figures[baseline], strict=True)])
        ratio_text = "1" if name == baseline else f"{ratio.median:.2f} {ratio.interval('.2f')}"
        print(f"| {name} | {median(values):,.2f} | {ratio_text} |")


def main(rounds: int) -> None:
    """Measures and prints everything, on a broker that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="producers-") as folder, own_kafka(Path(folder), find_java()) as (kafka, _):
        intervals_ms: list[float] = []
        producing = {name: lambda settings=settings: produced_per_s(kafka, settings, intervals_ms)
                     for name, settings in ARMS.items()}  # fmt: skip
        print_table(f"records of 1 kB per second, a commit due {TRANSACTION_S * 1000:.0f} ms after the last",
             in_turns(rounds, producing), "at-least-once")  # fmt: skip
        counted = intervals_ms[1:]  # the first value is from the round that does not count
        print(f"\na transaction took {median(counted):,.0f} ms on average, by round from {min(counted):,.0f} to "
              f"{max(counted):,.0f}")  # fmt: skip
        steps = kafka.create_topic("steps", 1)
        for rows in (1, SESSION_ROWS, BATCH_ROWS):
            arms = {
                "flush, then offsets": lambda rows=rows: ms_per_step(kafka, steps, rows, None),
                "transaction": lambda rows=rows: ms_per_step(kafka, steps, rows, {}),
                "transaction, short retry backoff": lambda rows=rows: ms_per_step(kafka, steps, rows, QUICK),
            }
            print_table(f"ms for {rows} records and an offset", in_turns(rounds, arms), "flush, then offsets")
        reads = kafka.create_topic("reads", 1)
        fill(kafka, reads)
        levels = {level: lambda level=level: read_per_s(kafka, reads, level)
                  for level in ("read_uncommitted", "read_committed")}  # fmt: skip
        print_table("records read per second, of committed transactions", in_turns(rounds, levels), "read_uncommitted")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
