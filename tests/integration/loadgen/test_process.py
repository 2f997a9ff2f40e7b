"""`python -m loadgen` as a process: its output, its exit codes, and its ledger after a kill."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, TopicPartition

from loadgen.ledger import Ledger
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


class Broker(Protocol):
    bootstrap_servers: str

    def kill(self) -> None: ...
    def fresh_topic(self, prefix: str, partitions: int) -> str: ...


class Loadgen:
    """The process, its files, and ways to wait for it."""

    def __init__(self, folder: Path, bootstrap_servers: str, topic: str, **more: Any) -> None:
        self.ledger_dir, self.status_path, self.stderr_path = (
            folder / "ledger",
            folder / "load.jsonl",
            folder / "err",
        )
        config = {
            "bootstrap_servers": bootstrap_servers,
            "topic": topic,
            "rate": 1_000,
            "sessions": 600,
            "ledger_dir": str(self.ledger_dir),
            "status_path": str(self.status_path),
            **more,
        }
        (folder / "config.json").write_text(json.dumps(config))
        with self.stderr_path.open("wb") as stderr:
            command = [sys.executable, "-m", "loadgen", str(folder / "config.json")]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)

    def lines(self) -> list[dict[str, Any]]:
        whole = self.status_path.read_text().rpartition("\n")[0] if self.status_path.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    def wait_for(self, what: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Waits for a condition of the newest status line; the load must live."""

        def done() -> bool:
            assert self.process.poll() is None, self.stderr
            lines = self.lines()
            return bool(lines) and condition(lines[-1])

        wait_for(what, done)

    def exit_code(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text()


@contextmanager
def loadgen(folder: Path, bootstrap_servers: str, topic: str, **more: Any) -> Iterator[Loadgen]:
    running = Loadgen(folder, bootstrap_servers, topic, **more)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def events_in(broker: Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "none"})
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in (0, 1))
    finally:
        consumer.close()


def test_a_load_reports_its_status_and_ends_with_the_summary(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic("load", partitions=2)
    with loadgen(tmp_path, kafka.bootstrap_servers, topic, sessions=20, seed=3, shape="ramp:500") as load:
        assert load.exit_code(timeout_s=60) == 0, load.stderr
        *statuses, last = load.lines()
    assert len(statuses) >= 2, "2.7 s and a line every 0.25 s, or fewer on a busy machine"
    names = {"t_us", "planned_by_now", "sent", "acknowledged", "failed", "rate_1s", "lateness_p99_ms"}
    assert all(set(status) == names for status in statuses)
    summary = last["summary"]
    assert last["done"] is True
    assert (summary["planned"], summary["sent"], summary["acknowledged"]) == (2_000, 2_000, 2_000)
    assert (summary["failed"], summary["unknown"], summary["sent_share"]) == (0, 0, 1.0)
    assert set(summary["lateness_ms"]) == {"p50", "p99", "max"}
    assert summary["events_per_s"] == pytest.approx(2_000 / summary["duration_s"], rel=0.001)
    plan = json.loads((load.ledger_dir / "plan.json").read_text())
    assert (plan["seed"], plan["rate"], plan["shape"], plan["topic"]) == (3, 1_000, "ramp:500", topic)
    assert events_in(kafka, topic) == 2_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_load_gently(kafka: Broker, tmp_path: Path, number: int) -> None:
    topic = kafka.fresh_topic("load", partitions=2)
    with loadgen(tmp_path, kafka.bootstrap_servers, topic) as load:
        load.wait_for("500 acknowledged events", lambda line: line["acknowledged"] > 500)
        load.process.send_signal(number)
        assert load.exit_code(timeout_s=60) == 0, load.stderr
        summary = load.lines()[-1]["summary"]
    assert summary["acknowledged"] == summary["sent"] == events_in(kafka, topic) < summary["planned"]
    assert summary["sent_share"] == summary["sent"] / 60_000


def test_a_second_signal_ends_the_wait_for_a_dead_broker(kafka_own: Broker, tmp_path: Path) -> None:
    topic = kafka_own.fresh_topic("load", partitions=2)
    with loadgen(tmp_path, kafka_own.bootstrap_servers, topic) as load:
        load.wait_for("500 acknowledged events", lambda line: line["acknowledged"] > 500)
        kafka_own.kill()
        load.wait_for("500 events without an answer", lambda line: line["sent"] > line["acknowledged"] + 500)
        load.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            load.exit_code(timeout_s=2)
        load.process.send_signal(signal.SIGTERM)
        assert load.exit_code(timeout_s=60) == 0, load.stderr
        summary = load.lines()[-1]["summary"]
    assert summary["unknown"] == summary["sent"] - summary["acknowledged"] > 500


def test_the_ledger_of_a_killed_generator_covers_everything_in_the_topic(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic("load", partitions=2)
    with loadgen(tmp_path, kafka.bootstrap_servers, topic, rate=5_000) as load:
        load.wait_for("5,000 acknowledged events", lambda line: line["acknowledged"] > 5_000)
        os.kill(load.process.pid, signal.SIGKILL)
        assert load.exit_code(timeout_s=60) == -signal.SIGKILL
    ledger = Ledger.open(load.ledger_dir)
    attempted, acknowledged = int((ledger.sent_us > 0).sum()), int((ledger.acked_us > 0).sum())
    assert 5_000 < acknowledged <= events_in(kafka, topic) <= attempted < len(ledger)
    assert (ledger.partition[ledger.acked_us > 0] >= 0).all()


def test_a_silent_broker_ends_the_load(tmp_path: Path) -> None:
    with loadgen(tmp_path, "127.0.0.1:1", "input") as load:
        assert load.exit_code(timeout_s=60) == 1
    assert "loadgen: no Kafka broker answered at 127.0.0.1:1 within 7 s" in load.stderr
    assert "Traceback" not in load.stderr
    assert not load.ledger_dir.exists()


def test_an_existing_ledger_is_refused_and_kept(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic("load", partitions=2)
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger/plan.json").write_text("precious")
    with loadgen(tmp_path, kafka.bootstrap_servers, topic) as load:
        assert load.exit_code(timeout_s=30) == 1
    assert "already holds a ledger" in load.stderr
    assert (tmp_path / "ledger/plan.json").read_text() == "precious"
    assert events_in(kafka, topic) == 0


def test_an_unwritable_status_file_ends_the_load(kafka: Broker, tmp_path: Path) -> None:
    missing = str(tmp_path / "none" / "load.jsonl")
    with loadgen(tmp_path, kafka.bootstrap_servers, "input", status_path=missing) as load:
        assert load.exit_code(timeout_s=30) == 1
    assert load.stderr == f"loadgen: {missing}: No such file or directory\n"
