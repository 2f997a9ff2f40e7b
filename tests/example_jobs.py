"""Runs the jobs of `examples/` on real servers, and counts their output.

The counts use none of the project's own readers.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Producer

from oncebench.delivery.contract import SinkKind
from oncebench.jobs.checkpoint import open_batch
from oncebench.lab.lab import Lab
from oncebench.processes import child
from oncebench.processes.child import Child
from tests import ROOT
from tests.reading import committed_records

PARTITIONS = 2


def with_names(text: str, servers: str, input_topic: str, output_topic: str, spark: str) -> str:
    """Returns the text of an example with other topics, sink ids, servers and Spark settings."""
    # Before the input's name is in the text: one of sixteen random names begins with `orders-1`.
    text = text.replace("orders-checked", output_topic).replace("orders-1", output_topic)
    for before, after in (
        (r'"broker1:9092"', repr(servers)),
        (r'"subscribe", "orders"', f'"subscribe", "{input_topic}"'),
        (r'\.config\("spark\.jars\.packages", f?"[^"]*"\)', spark),
    ):
        text, count = re.subn(before, lambda _, after=after: after, text)  # type: ignore[misc]
        assert count > 0, before
    return text


def in_small_batches(text: str, most: int) -> str:
    """Returns the text of an example whose queries take few records into a batch.

    The queries do not wait between two batches.
    """
    for before, after in (
        (r'(\.option\("startingOffsets", "earliest"\))', rf'\1.option("maxOffsetsPerTrigger", "{most}")'),
        (r'processingTime="1 second"', 'processingTime="0 seconds"'),
    ):
        text, count = re.subn(before, after, text)
        assert count > 0, before
    return text


class Example:
    """A job of `examples/` with topics of its own, in a folder of its own.

    Args:
        lab: Java, jars and a broker.
        folder: the job's working folder.
        name: of the file in `examples/`.
        kinds: of sinks whose jars the job needs.
        most: orders in a batch of each query; None: as many as there are.
    """

    def __init__(
        self, lab: Lab, folder: Path, name: str, kinds: Iterable[SinkKind] = (), most: int | None = None
    ) -> None:
        self.lab, self.folder, self._starts = lab, folder, 0
        self.servers = lab.kafka.bootstrap_servers
        self.input = lab.kafka.fresh_topic("orders", PARTITIONS)
        self.output = lab.kafka.fresh_topic("checked", PARTITIONS)
        spark = lab.spark(kinds)
        classes = os.pathsep.join([*spark["driver_jars"], *spark["jars"]])
        java = " ".join([*spark["jvm_options"], "-XX:TieredStopAtLevel=1"])
        given = f""".config("spark.driver.extraClassPath", {classes!r}).config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", {java!r})"""
        text = (ROOT / "examples" / name).read_text()
        text = with_names(text, self.servers, self.input, self.output, given)
        if most is not None:
            text = in_small_batches(text, most)
        (folder / "job.py").write_text(text)
        self._producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})

    def start(self) -> Child:
        """Starts the job once."""
        self._starts += 1
        environment = {**self.lab.environment(), "PYSPARK_PYTHON": sys.executable}
        log = self.folder / f"job-{self._starts}.log"
        return child.start("the job", [sys.executable, "job.py"], log, cwd=self.folder, env=environment)

    def send(self, orders: Iterable[Mapping[str, Any]]) -> None:
        """Sends orders, which are acknowledged when this returns."""
        for order in orders:
            self._producer.produce(self.input, key=order["order_id"], value=json.dumps(order))
        assert self._producer.flush(60) == 0

    def open_batches(self) -> list[int]:
        """The batches that a query has planned and not finished."""
        checkpoints = (path.parent for path in self.folder.rglob("offsets"))
        return [batch for batch in map(open_batch, checkpoints) if batch is not None]

    def in_topic(self) -> Counter[str]:
        """How often a committed consumer reads each order."""
        values = (record.value() or b"{}" for record in committed_records(self.servers, self.output))
        return Counter(json.loads(value)["order_id"] for value in values)


def in_table(dsn: str, table: str) -> Counter[str]:
    """How often each order is in a table, by SQL."""
    with psycopg.connect(dsn) as connection:
        counted = connection.execute(f"SELECT order_id, count(*) FROM {table} GROUP BY order_id")
        return Counter(dict(counted.fetchall()))
