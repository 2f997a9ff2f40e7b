"""Events of another producer during a run are judged by what happened.

They are copies in another partition, and huge records.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from oncebench.lab.lab import Lab
from oncebench.measure import measure
from oncebench.record.json_lines import read_lines
from oncebench.scenario.cell import Cell
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.workdir import open_work_dir
from tests.kafka_topics import configure
from tests.pipelines import event, position, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

# The limits of the run itself end the test earlier.
WAIT_S = 800.0
# The load goes on while the foreign events are sent and read; on a busy machine the run then drains for longer.
CELL = Cell("kafka", "exactly-once", "two-phase", rate=200.0, sessions=90, warmup_s=0.0)
HUGE_BYTES = 9_000_000  # more than the quarantine topic takes


class Foreign(threading.Thread):
    """Another producer, which starts with the load of the run in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.failure = folder, ""

    def run(self) -> None:
        try:
            wait_for("the load", self._load_began, limit_s=WAIT_S)
            cell = json.loads((self.folder / "cell.json").read_bytes())
            self.servers, self.topic = cell["kafka"]["bootstrap_servers"], cell["topics"]["input"]
            self._allow_huge_records()
            self.producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 2 * HUGE_BYTES})
            same, other = session("x-1"), session("x-2")
            self._send(1, [*same[:99], *other[:99]])
            # The copies are read later, and stand in the partition with the lower number.
            self._send(0, [same[5], (b"x-2", event("x-2", 5, "entry_event", 77))])
            self._send(1, [same[99], other[99]])
            self._send(0, [(b"x-3", b"x" * HUGE_BYTES)])
        except Exception as failure:
            self.failure = repr(failure)

    def _load_began(self) -> bool:
        return any(line["event"] == "load-started" for line in read_lines(self.folder / "timeline.jsonl").items)

    def _send(self, partition: int, records: Sequence[tuple[bytes, Any]]) -> None:
        """Sends records, and waits until a batch has read them."""
        for key, value in records:
            self.producer.produce(self.topic, key=key, value=value, partition=partition)
        assert self.producer.flush(60) == 0
        with closing(KafkaReader(self.servers, self.topic)) as reader:
            end = reader.ends()[partition].lso
        wait_for("a batch", lambda: position(self.folder).get(str(partition), 0) >= end, limit_s=WAIT_S)

    def _allow_huge_records(self) -> None:
        configure(AdminClient({"bootstrap.servers": self.servers}), self.topic, {"max.message.bytes": 20_000_000})


@pytest.mark.timeout(900)
def test_copies_in_another_partition_and_a_cut_record_leave_the_verdict_kept(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    foreign = Foreign(folder)
    foreign.start()
    with open_work_dir(folder) as work:
        report = measure(CELL, lab, work.path)
    foreign.join(1)
    assert not foreign.is_alive(), "the run ended before the foreign events were read"
    assert not foreign.failure
    assert (report["verdict"], report["reasons"], report["anomalies"]) == ("kept", [], {})
    assert report["auditors"]["agree"]
    assert report["events"]["invalid"] == report["events"]["quarantined"] == 3
