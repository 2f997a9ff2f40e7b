"""Runs the jobs of `examples/` on real servers, and counts their output without the project's own readers."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from oncebench.lab.lab import Lab
from oncebench.processes import child
from oncebench.processes.child import Child
from tests import ROOT

PARTITIONS = 2


class Example:
    """A job of `examples/` with topics of its own, in a folder of its own.

    Args:
        lab: Java, jars and a broker.
        folder: the job's working folder.
        name: of the file in `examples/`.
        replaced: more texts of the job, and what stands there in the test.
    """

    def __init__(self, lab: Lab, folder: Path, name: str, replaced: Iterable[tuple[str, str]] = ()) -> None:
        self.lab, self.folder, self._starts = lab, folder, 0
        self.servers = lab.kafka.bootstrap_servers
        self.input = lab.kafka.fresh_topic("orders", PARTITIONS)
        self.output = lab.kafka.fresh_topic("checked", PARTITIONS)
        spark = lab.spark([])
        java = " ".join([*spark["jvm_options"], "-XX:TieredStopAtLevel=1"])
        text = (ROOT / "examples" / name).read_text()
        for before, after in (
            ('"broker1:9092"', f'"{self.servers}"'),
            ('"orders")\n    .option("startingOffsets"', f'"{self.input}")\n    .option("startingOffsets"'),
            ('"orders-checked"', f'"{self.output}"'),
            ('sink_id="orders-1"', f'sink_id="{self.output}"'),
            (
                '.config("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0")',
                f'.config("spark.driver.extraClassPath", {os.pathsep.join(spark["driver_jars"])!r})'
                f'.config("spark.driver.extraJavaOptions", {java!r}).config("spark.ui.enabled", "false")',
            ),
            *replaced,
        ):
            assert before in text, before
            text = text.replace(before, after)
        (folder / "job.py").write_text(text)
        self._producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})

    def start(self) -> Child:
        """Starts the job once."""
        self._starts += 1
        environment = {**self.lab.environment(), "PYSPARK_PYTHON": sys.executable}
        log = self.folder / f"job-{self._starts}.log"
        return child.start("the job", [sys.executable, "job.py"], log, cwd=self.folder, env=environment)

    def send(self, numbers: Iterable[int]) -> None:
        """Sends orders, which are acknowledged when this returns."""
        for number in numbers:
            value = json.dumps({"order_id": f"o-{number}", "cents": number})
            self._producer.produce(self.input, key=f"o-{number}", value=value)
        assert self._producer.flush(60) == 0

    def in_topic(self) -> Counter[str]:
        """How often a committed consumer reads each order."""
        settings = {"bootstrap.servers": self.servers, "group.id": "count", "enable.auto.commit": False}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
        found: Counter[str] = Counter()
        try:
            places = [TopicPartition(self.output, partition, 0) for partition in range(PARTITIONS)]
            ends = {place.partition: consumer.get_watermark_offsets(place, 30)[1] for place in places}
            consumer.assign(places)
            while any(place.offset < ends[place.partition] for place in consumer.position(places)):
                message = consumer.poll(1.0)
                if message is None:
                    if all(place.offset < 0 for place in consumer.position(places)) and not any(ends.values()):
                        break
                    return found  # what follows belongs to an open transaction
                assert message.error() is None, message.error()
                found[json.loads(message.value())["order_id"]] += 1
        finally:
            consumer.close()
        return found


def in_table(dsn: str, table: str) -> Counter[str]:
    """How often each order is in a table, by SQL."""
    with psycopg.connect(dsn) as connection:
        counted = connection.execute(f"SELECT order_id, count(*) FROM {table} GROUP BY order_id")
        return Counter(dict(counted.fetchall()))
