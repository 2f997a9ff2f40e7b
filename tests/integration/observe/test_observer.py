"""The observer process against a real broker, which may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from oncebench.record import OBSERVED
from oncebench.record.json_lines import read_lines
from oncebench.record.streams import Stream, read_stream
from oncebench.servers.kafka.broker import KafkaBroker
from tests import ROOT
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

LIMIT_S = 60.0


def target(kafka: KafkaBroker, topic: str) -> dict[str, Any]:
    return {"output": topic, "sink_id": topic, "kafka": kafka.access.as_json()}


class Observer:
    """One observer process and its files."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.observed = folder / "observed.arrow"
        self.status = folder / "observer.jsonl"
        paths = {"observed_path": str(self.observed), "status_path": str(self.status)}
        (folder / "observer.json").write_text(json.dumps({**paths, **config}))
        self.log = folder / "observer.log"
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "oncebench.observe.observer", str(folder / "observer.json")]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def stream(self) -> Stream:
        return read_stream(self.observed, OBSERVED)

    def last(self) -> dict[str, Any]:
        lines = read_lines(self.status).items
        return lines[-1] if lines else {"visible": -1}

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[KafkaBroker, str], Observer]]:
    """Starts an observer and waits for its first status line; kills it at the end."""
    started: list[Observer] = []

    def run(kafka: KafkaBroker, topic: str) -> Observer:
        observer = Observer(tmp_path, {"sink": "kafka", "target": target(kafka, topic)})
        started.append(observer)
        wait_for(f"the observer's first status line, see {observer.log}", lambda: observer.last()["visible"] == 0)
        return observer

    yield run
    for observer in started:
        observer.kill()


def row(ended_at: int, j: int = 0) -> bytes:
    item = {"session_key": "k", "j": j, "events": 5, "total": 1, "checksum": 2, "ended_at": ended_at}
    return json.dumps(item).encode()


def now_us() -> int:
    return time.time_ns() // 1000


def test_every_committed_row_is_recorded_after_its_commit_and_no_aborted_row(
    kafka: KafkaBroker, start: Callable[[KafkaBroker, str], Observer]
) -> None:
    topic = kafka.fresh_topic("observed", partitions=2)
    observer = start(kafka, topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(LIMIT_S)
    commits: list[tuple[int, int]] = []
    for number in range(6):
        producer.begin_transaction()
        for at in range(20):
            producer.produce(topic, row(now_us(), number), key=str(at), partition=at % 2)
        assert producer.flush(LIMIT_S) == 0
        if number % 3 == 2:
            producer.abort_transaction(LIMIT_S)
            continue
        before = now_us()
        producer.commit_transaction(LIMIT_S)
        commits.append((number, before))
    wait_for("80 rows in the observer's status", lambda: observer.last()["visible"] == 80)
    assert observer.stop() == 0
    stream = observer.stream()
    assert stream.complete
    rows = stream.table.to_pylist()
    assert len(rows) == 80
    assert [r["offset"] for r in rows if r["partition"] == 0] == sorted(
        r["offset"] for r in rows if r["partition"] == 0
    )
    seen = {number: [r["seen_us"] for r in rows if json.loads(r["value"])["j"] == number] for number, _ in commits}
    assert all(len(times) == 20 for times in seen.values())
    for number, before in commits:
        assert min(seen[number]) >= before
    last = observer.last()
    assert last.keys() == {"t_us", "visible", "last_row_us", "p50_ms", "p99_ms", "max_ended_at_us"}
    assert last["max_ended_at_us"] == max(json.loads(r["value"])["ended_at"] for r in rows)


def test_rows_from_before_the_start_are_recorded(
    kafka: KafkaBroker, start: Callable[[KafkaBroker, str], Observer], tmp_path: Path
) -> None:
    topic = kafka.fresh_topic("observed", partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for _ in range(20_000):
        producer.produce(topic, row(1))
    assert producer.flush(LIMIT_S) == 0
    observer = Observer(tmp_path, {"sink": "kafka", "target": target(kafka, topic)})
    try:
        wait_for("20,000 rows in the observer's status", lambda: observer.last()["visible"] == 20_000)
        assert observer.stop() == 0
    finally:
        observer.kill()
    assert observer.stream().table["offset"].to_pylist() == list(range(20_000))


def test_the_last_rows_before_SIGTERM_are_written(
    kafka: KafkaBroker, start: Callable[[KafkaBroker, str], Observer]
) -> None:
    topic = kafka.fresh_topic("observed", partitions=1)
    observer = start(kafka, topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "linger.ms": 0})

    def shown() -> bool:
        producer.produce(topic, row(1))
        assert producer.flush(LIMIT_S) == 0
        return bool(observer.last()["visible"] > 0)

    # Rows come until the stop: the last ones were read after the last write before it.
    wait_for("a row in the status", shown)
    visible = observer.last()["visible"]
    assert shown()
    assert observer.stop() == 0
    offsets = observer.stream().table["offset"].to_pylist()
    assert offsets == list(range(len(offsets)))
    assert len(offsets) == observer.last()["visible"] >= visible


def test_the_observer_survives_a_broker_restart(
    kafka_own: KafkaBroker, start: Callable[[KafkaBroker, str], Observer]
) -> None:
    topic = kafka_own.fresh_topic("observed", partitions=2)
    observer = start(kafka_own, topic)

    def write(count: int) -> None:
        producer = Producer({"bootstrap.servers": kafka_own.bootstrap_servers, "log_level": 0})
        for at in range(count):
            producer.produce(topic, row(now_us()), partition=at % 2)
        assert producer.flush(LIMIT_S) == 0

    write(10)
    wait_for("10 rows before the kill", lambda: observer.last()["visible"] == 10)
    kafka_own.kill()
    wait_for("the broker's death", lambda: not kafka_own.alive)
    kafka_own.start()
    write(14)
    wait_for("24 rows after the restart", lambda: observer.last()["visible"] == 24)
    assert observer.stop() == 0
    rows = observer.stream().table.select(["partition", "offset"]).to_pylist()
    assert sorted((r["partition"], r["offset"]) for r in rows) == [(p, o) for p in (0, 1) for o in range(12)]


def test_the_file_of_a_killed_observer_is_readable(
    kafka: KafkaBroker, start: Callable[[KafkaBroker, str], Observer]
) -> None:
    topic = kafka.fresh_topic("observed", partitions=1)
    observer = start(kafka, topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    producer.produce(topic, row(1))
    assert producer.flush(LIMIT_S) == 0
    wait_for("the row in the stream", lambda: observer.stream().table.num_rows == 1)
    os.kill(observer.process.pid, signal.SIGKILL)
    assert observer.process.wait(LIMIT_S) == -signal.SIGKILL
    stream = observer.stream()
    assert (stream.table.num_rows, stream.complete) == (1, False)
    assert read_lines(observer.status).items


def test_the_observer_stops_while_rows_stream_in(
    kafka: KafkaBroker, start: Callable[[KafkaBroker, str], Observer]
) -> None:
    topic = kafka.fresh_topic("observed", partitions=1)
    observer = start(kafka, topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "linger.ms": 0})
    wait_for("the first rows of a flood", lambda: flooded(producer, topic) and observer.last()["visible"] > 0)
    observer.process.send_signal(signal.SIGTERM)
    wait_for("the observer's end", lambda: flooded(producer, topic) and observer.process.poll() is not None)
    assert observer.process.returncode == 0
    assert observer.stream().complete


def flooded(producer: Producer, topic: str) -> bool:
    """Sends for about 20 ms."""
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        with suppress(BufferError):  # the client's queue is full
            producer.produce(topic, row(1))
        producer.poll(0)
    return True


def test_an_observer_without_its_topic_stops_on_SIGTERM(kafka: KafkaBroker, tmp_path: Path) -> None:
    observer = Observer(tmp_path, {"sink": "kafka", "target": target(kafka, "not-there")})
    try:
        wait_for("the observer's signal handlers", lambda: catches_sigterm(observer.process.pid))
        assert observer.stop() == 0
    finally:
        observer.kill()


def catches_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (caught,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"sink": "kafka", "target": {}}'])
def test_an_unusable_configuration_is_an_error_without_a_traceback(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    command = [sys.executable, "-m", "oncebench.observe.observer", str(tmp_path / "bad.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert "no usable observer configuration" in done.stderr
    assert "Traceback" not in done.stderr
