"""What transactions cost Kafka's clients alone, without Spark: `python tools/producers.py [ROUNDS]`.

Three published claims, measured on a broker of our own on loopback: producing with short transactions beside producing
without, a transaction for each message beside a flush and a commit of offsets, and reading `read_committed` beside
`read_uncommitted`. The arms take turns, every other round backwards; what is printed are medians over the rounds and,
as ratios within a round, their 95 % bootstrap intervals. What can go wrong: the client is librdkafka on the broker's
machine, so both compete for its processor. A commit first sends all that is queued, so transactions last longer than
they are meant to: by how much is printed. Both readers read a topic that holds committed transactions only: what
aborted ones cost, and how long rows of an open one keep a `read_committed` reader waiting, this does not show.
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
from oncebench.report.comparisons.paired import bootstrap
from oncebench.servers.kafka.broker import KafkaBroker

RECORD = bytes(1000)
PRODUCE_S = 4.0  # an arm and round; a broker takes its speed within the first second
TRANSACTION_S = 0.1  # the commit interval of the claims
MESSAGES = 300  # transactions of one message each, an arm and round
SESSION_ROWS, BATCH_ROWS = 20, 1000  # rows of a session, and of some batch of a pipeline
READ_RECORDS = 200_000
FILL_TRIES = 15  # of PRODUCE_S each; a machine that does fewer than 3,300 records/s has no figures to show
# A produced topic takes 0.4 GB at 100,000 records/s; a deleted one's files stay for a minute as Kafka is shipped.
SOON_GONE = {"file.delete.delay.ms": "1000"}
PLAIN = {"linger.ms": 5, "queue.buffering.max.messages": 100_000, "enable.idempotence": False}
# By guarantee: what each arm's producer is told.
ARMS: Mapping[str, dict[str, Any]] = {
    "at-most-once": PLAIN | {"acks": 1, "max.in.flight.requests.per.connection": 5},
    "at-least-once": PLAIN | {"acks": "all", "max.in.flight.requests.per.connection": 1},
    "exactly-once": {"linger.ms": 5, "queue.buffering.max.messages": 100_000, "transactional.id": "producers"},
}
# A transaction that follows at once finds the broker at the markers of the one before, and the client tries again: by
# default after 100 ms, and that is then all that one sees.
QUICK = {"retry.backoff.ms": 1}
Figures = dict[str, list[float]]


@dataclass(frozen=True)
class Produced:
    """What a producer has got through: records, in how many transactions (0: without), in which time."""

    records: int
    commits: int
    took_s: float


def produced(kafka: KafkaBroker, topic: str, settings: Mapping[str, Any]) -> Produced:
    """Sends records of 1 kB for PRODUCE_S, until the last is acknowledged; with a transactional id a transaction is
    committed as soon as it has been open for TRANSACTION_S."""
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
        raise SystemExit(f"{left} records were not acknowledged within 30 s")
    return Produced(sent, commits, time.monotonic() - began)


def produced_per_s(kafka: KafkaBroker, settings: Mapping[str, Any], intervals_ms: list[float]) -> float:
    """Records of 1 kB per second into a topic of their own; in transactions, the mean time of one is added."""
    topic = kafka.fresh_topic("speed", 1, SOON_GONE)
    done = produced(kafka, topic, settings)
    admin = kafka.admin()  # it must live until the answer has come
    admin.delete_topics([topic])[topic].result(30)
    intervals_ms += [done.took_s * 1000 / done.commits] if done.commits else []
    return done.records / done.took_s


def fill(kafka: KafkaBroker, topic: str) -> None:
    """Sends transactions to a topic until it holds READ_RECORDS records.

    Raises:
        SystemExit: that takes too long.
    """
    held = 0
    for _ in range(FILL_TRIES):
        held += produced(kafka, topic, ARMS["exactly-once"]).records
        if held >= READ_RECORDS:
            return
    raise SystemExit(f"{held:,} records were sent in {FILL_TRIES * PRODUCE_S:.0f} s, and {READ_RECORDS:,} are to be "
                     "read: use a quieter machine")  # fmt: skip


def ms_per_step(kafka: KafkaBroker, topic: str, rows: int, settings: Mapping[str, Any] | None) -> float:
    """Median time to make `rows` records and the offset of their input durable, one step right after the other: in a
    transaction each with these settings, or without (None)."""
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
    """Records per second of one reader at an isolation level, from the first record to READ_RECORDS."""
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": "reads", "isolation.level": level,
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    while not (first := consumer.consume(1, 30)):
        raise SystemExit("nothing to read within 30 s")
    began, count = time.monotonic(), len(first)
    while count < READ_RECORDS:
        messages = consumer.consume(1000, 30)
        if not messages:
            raise SystemExit(f"{count} of {READ_RECORDS} records came, and then none for 30 s")
        count += len(messages)
    took_s = time.monotonic() - began
    consumer.close()
    return count / took_s


def in_turns(rounds: int, arms: Mapping[str, Callable[[], float]]) -> Figures:
    """Each arm's figure in each round, after one round that is not counted."""
    found: Figures = {name: [] for name in arms}
    for number in range(-1, rounds):
        for name in list(arms) if number % 2 else list(arms)[::-1]:
            figure = arms[name]()
            if number >= 0:
                found[name].append(figure)
    return found


def tell(title: str, figures: Figures, beside: str) -> None:
    """Prints a table: the medians, and the ratios to the arm `beside`."""
    print(f"\n{title}\n\n| arm | median | x {beside} (95 %) |\n| --- | ---: | ---: |")
    for name, values in figures.items():
        ratio = bootstrap([mine / theirs for mine, theirs in zip(values, figures[beside], strict=True)])
        shown = "1" if name == beside else f"{ratio.median:.2f} {ratio.interval('.2f')}"
        print(f"| {name} | {median(values):,.2f} | {shown} |")


def main(rounds: int) -> None:
    """Runs and prints everything, on a broker that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="producers-") as folder, own_kafka(Path(folder), find_java()) as (kafka, _):
        intervals_ms: list[float] = []
        producing = {name: lambda settings=settings: produced_per_s(kafka, settings, intervals_ms)
                     for name, settings in ARMS.items()}  # fmt: skip
        tell(f"records of 1 kB per second, a commit due {TRANSACTION_S * 1000:.0f} ms after the last",
             in_turns(rounds, producing), "at-least-once")  # fmt: skip
        counted = intervals_ms[1:]  # those of the round that counts for nothing came first
        print(f"\na transaction took {median(counted):,.0f} ms on average, by round from {min(counted):,.0f} to "
              f"{max(counted):,.0f}")  # fmt: skip
        steps = kafka.create_topic("steps", 1)
        for rows in (1, SESSION_ROWS, BATCH_ROWS):
            arms = {
                "flush, then offsets": lambda rows=rows: ms_per_step(kafka, steps, rows, None),
                "transaction": lambda rows=rows: ms_per_step(kafka, steps, rows, {}),
                "transaction, quick to try again": lambda rows=rows: ms_per_step(kafka, steps, rows, QUICK),
            }
            tell(f"ms for {rows} records and an offset", in_turns(rounds, arms), "flush, then offsets")
        reads = kafka.create_topic("reads", 1)
        fill(kafka, reads)
        levels = {level: lambda level=level: read_per_s(kafka, reads, level)
                  for level in ("read_uncommitted", "read_committed")}  # fmt: skip
        tell("records read per second, of committed transactions", in_turns(rounds, levels), "read_uncommitted")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
