"""A real pipeline for tests: its topics, its process, and its output."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from oncebench.audit.python.model import Expected, expected_output
from oncebench.delivery.failpoints import parse_fault
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.engine import SPARK, Engine
from oncebench.lab.lab import Lab
from oncebench.observe.final_read import save_topic
from oncebench.record import INPUT
from oncebench.record.json_lines import read_lines
from oncebench.record.schema import READ
from oncebench.record.streams import read_stream
from oncebench.run.attempts.supervisor import Supervisor
from oncebench.run.configs import NO_EMPTY_BATCHES
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.reader import Rows
from oncebench.sinks.registry import SINKS
from oncebench.sinks.suite import Place
from pipeline.config import PipelineConfig
from pipeline.rows import KEY, SCHEMA
from tests.reading import SETTLE_S, extend

WAIT_S = 120.0  # Spark starts in 5 to 10 s on idle cores, and needs many times that next to other tests
PARTITIONS = 2


def place(name: str, folder: Path) -> Place:
    """Where an output of the job's rows may be, for sinks that need no topic."""
    return Place(name, folder, PARTITIONS, KafkaAccess(""), str, SCHEMA, KEY)


class Fixture:
    """New topics, and configurations of pipelines between them."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        kafka = lab.kafka
        self.input = kafka.fresh_topic("in", PARTITIONS, {"max.message.bytes": "8388608"})
        self.output = kafka.fresh_topic("out", PARTITIONS)
        self.quarantine = kafka.fresh_topic("quarantine", PARTITIONS, {"max.message.bytes": "8388608"})
        self.connect()

    def connect(self) -> None:
        """Makes a new producer, which has no memory of topics that were deleted."""
        settings = {"bootstrap.servers": self.lab.kafka.bootstrap_servers, "message.max.bytes": 8388608}
        self._producer = Producer(settings)

    def config(self, guarantee: str, variant: str, *faults: str, **changes: Any) -> PipelineConfig:
        record = changes.pop("record", self.folder / "record")
        record.mkdir(exist_ok=True)
        spark = self.lab.spark([SINKS[changes.get("sink", "kafka")]])
        config = PipelineConfig(
            spark=changes.pop("settings", NO_EMPTY_BATCHES),
            bootstrap_servers=self.lab.kafka.bootstrap_servers,
            input_topic=self.input,
            output={"output": self.output},
            quarantine_topic=self.quarantine,
            sink="kafka",
            guarantee=guarantee,
            variant=variant,
            sink_id=self.output,
            checkpoint=self.folder / "checkpoint",
            record=record,
            partitions=PARTITIONS,
            faults=tuple(map(parse_fault, faults)),
        )
        return replace(config, **spark, **changes)

    def pipeline(self, config: PipelineConfig, engine: Engine = SPARK) -> Supervisor:
        return Supervisor(config, self.lab.environment(), random_kills=0, seed=1, engine=engine)

    def send(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Sends records to the input topic; the length of a key decides its partition."""
        for key, value in records:
            self._producer.produce(self.input, key=key, value=value, partition=0 if key is None else len(key) % 2)
        assert self._producer.flush(30) == 0

    def send_to(self, partition: int, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Sends records to one partition of the input topic."""
        for key, value in records:
            self._producer.produce(self.input, key=key, value=value, partition=partition)
        assert self._producer.flush(30) == 0

    def input_ends(self) -> dict[str, int]:
        with closing(KafkaReader(self.lab.kafka.bootstrap_servers, self.input)) as reader:
            return {str(p): end.lso for p, end in reader.ends().items()}

    def expected(self) -> Expected:
        """The output that the model computes from the input topic."""
        path = self.folder / f"input-{time.time_ns()}.arrow"
        with closing(KafkaReader(self.lab.kafka.bootstrap_servers, self.input)) as reader:
            assert save_topic(reader, path, settle_s=SETTLE_S).complete
        return expected_output(read_stream(path, INPUT).table)

    def rows(self, topic: str | None = None, committed: bool = True) -> Rows:
        """All rows of a topic (by default the output topic), read to its end."""
        found = Rows()
        with closing(
            KafkaReader(self.lab.kafka.bootstrap_servers, topic or self.output, committed=committed)
        ) as reader:
            report = reader.read_to_end(lambda rows: extend(found, rows), settle_s=30.0)
        assert report.complete, report.note
        assert not committed or all(end.lso == end.hw for end in report.ends.values()), report
        return found

    def visible(self) -> Counter[tuple[str, int]]:
        """The number of times that a committed reader sees each row id."""
        values = (json.loads(value or b"{}") for value in self.rows().value)
        return Counter((row["session_key"], row["j"]) for row in values)


def position(record: Path) -> dict[str, int]:
    """The committed position that a pipeline has reported."""
    reached: dict[str, int] = {}
    for line in read_lines(record / "progress.jsonl").items:
        if line["kind"] in READ:
            for partition, offset in line["end_offsets"].items():
                reached[partition] = max(offset, reached.get(partition, 0))
    return reached


def session(key: str, values: Iterable[int] = range(100), start: int = 0) -> list[tuple[bytes, bytes]]:
    """The 100 records of a session."""
    kinds = {0: "start_event", 99: "end_event"}
    return [
        (key.encode(), event(key, seq, kinds.get(seq, "entry_event"), value))
        for seq, value in enumerate(values)
        if seq >= start
    ]


def event(key: str, seq: int, kind: str, value: int, scheduled_at: int = 1_700_000_000_000_000) -> bytes:
    fields = {"session_key": key, "seq": seq, "type": kind, "value": value, "scheduled_at": scheduled_at}
    return json.dumps(fields).encode()


def every_row(*keys: str) -> Counter[tuple[str, int]]:
    """Each row of these sessions, once."""
    return Counter({(key, j): 1 for key in keys for j in range(20)})
