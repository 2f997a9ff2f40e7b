"""The load on a real broker: its promises on a healthy broker and during a broker failure."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any, Protocol

import numpy as np
import pytest
from confluent_kafka import Producer

from loadgen import client
from loadgen.config import LoadConfig
from loadgen.errors import LoadError
from loadgen.ledger import Ledger
from loadgen.producer import run_load
from loadgen.session import encode, session_key
from loadgen.status import Status, Summary
from oncebench.servers.kafka.broker import KafkaBroker
from tests.lost_addresses import lose_addresses
from tests.reading import committed_records
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


Record = tuple[int, int, bytes, bytes]  # partition, offset, key, value


class Broker(Protocol):
    bootstrap_servers: str

    def kill(self) -> None: ...
    def restart(self) -> None: ...
    def fresh_topic(self, prefix: str, partitions: int) -> str: ...


def config(broker: Broker, folder: Path, rate: Any, sessions: int, **more: Any) -> LoadConfig:
    topic = more.pop("topic", None) or broker.fresh_topic("load", partitions=2)
    return LoadConfig(broker.bootstrap_servers, topic, rate, sessions, folder / "ledger", **more)


def read_topic(broker: Broker, topic: str) -> list[Record]:
    records = committed_records(broker.bootstrap_servers, topic)
    return [(each.partition(), each.offset(), each.key(), each.value()) for each in records]


def expected_values(ledger: Ledger) -> list[bytes]:
    texts = encode(ledger.plan.seed, ledger.session, ledger.seq, ledger.scheduled_us)[1]
    return [text.encode() for text in texts]


def assert_topic_holds_the_ledger_exactly_once(broker: Broker, load: LoadConfig) -> None:
    ledger, records = Ledger.open(load.ledger_dir), read_topic(broker, load.topic)
    copies = Counter(value for _, _, _, value in records)
    lost = [value for value in expected_values(ledger) if not copies[value]]
    duplicated = {value: count for value, count in copies.items() if count > 1}
    assert (len(lost), len(duplicated)) == (0, 0), (lost[:3], list(duplicated)[:3])
    assert len(records) == load.events
    assert_acknowledged_events_are_where_the_ledger_says(ledger, records)


def assert_acknowledged_events_are_where_the_ledger_says(ledger: Ledger, records: list[Record]) -> None:
    values = expected_values(ledger)
    keys = [session_key(ledger.plan.seed, number) for number in range(ledger.plan.sessions)]
    there = {(partition, offset): (key, value) for partition, offset, key, value in records}
    for event in np.flatnonzero(ledger.acked_us > 0).tolist():
        key, value = there[int(ledger.partition[event]), int(ledger.offset[event])]
        assert (key.decode(), value) == (keys[ledger.session[event]], values[event])


class Background:
    """A load in a thread of its own, and the statuses it has given so far."""

    def __init__(self, load: LoadConfig) -> None:
        self.statuses: list[Status] = []
        self.summary: Summary | None = None
        self.stop = Event()
        self._load = load
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.summary = run_load(self._load, stop=self.stop, on_status=self.statuses.append)

    @property
    def last(self) -> Status:
        return self.statuses[-1] if self.statuses else Status(0, 0, 0, 0, 0, 0.0, 0.0)

    def finish(self, timeout_s: float = 120.0) -> Summary:
        self._thread.join(timeout_s)
        assert self.summary is not None, f"the load did not end in {timeout_s} s; last status: {self.last}"
        return self.summary


def test_every_event_is_once_in_the_topic_at_its_ledger_position(kafka: Broker, tmp_path: Path) -> None:
    load = config(kafka, tmp_path, rate="max", sessions=300, seed=7)
    summary = run_load(load)
    assert (summary.planned, summary.sent, summary.acknowledged) == (30_000, 30_000, 30_000)
    assert (summary.failed, summary.unknown, summary.sent_share, summary.error) == (0, 0, 1.0, None)
    assert_topic_holds_the_ledger_exactly_once(kafka, load)


def test_a_key_is_in_the_partition_that_java_clients_choose(kafka: Broker, tmp_path: Path) -> None:
    load = config(kafka, tmp_path, rate="max", sessions=50, topic=kafka.fresh_topic("load", partitions=5))
    run_load(load)
    found = {(key, partition) for partition, _, key, _ in read_topic(kafka, load.topic)}
    assert found == {(key, (murmur2(key) & 0x7FFFFFFF) % 5) for key, _ in found}
    assert len(found) == 50


def murmur2(data: bytes) -> int:
    """`org.apache.kafka.common.utils.Utils.murmur2`, after its Java source."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def test_events_go_out_at_their_scheduled_times(kafka: Broker, tmp_path: Path) -> None:
    load = config(kafka, tmp_path, rate=2_000.0, sessions=80)
    statuses: list[Status] = []
    summary = run_load(load, on_status=statuses.append)
    ledger = Ledger.open(load.ledger_dir)
    late_us = ledger.sent_us - ledger.scheduled_us
    assert late_us.min() >= 0, "an event was sent before its time"
    assert summary.lateness_ms.max == pytest.approx(late_us.max() / 1e3, abs=0.001)
    assert ledger.scheduled_us[0] == ledger.plan.started_us
    assert ledger.scheduled_us[-1] - ledger.scheduled_us[0] == pytest.approx(7_999 * 500, abs=1)
    assert all(b.sent >= a.sent and b.t_us > a.t_us for a, b in pairwise(statuses))
    assert statuses[-1].acknowledged == 8_000


def test_the_same_seed_makes_the_same_load_again(kafka: Broker, tmp_path: Path) -> None:
    ledgers = []
    for name in ("one", "two"):
        load = config(kafka, tmp_path / name, rate=50_000.0, sessions=30, seed=11)
        run_load(load)
        ledgers.append(Ledger.open(load.ledger_dir))
    one, two = ledgers
    assert (one.session == two.session).all()
    assert (one.seq == two.seq).all()
    assert (one.scheduled_us - one.plan.started_us == two.scheduled_us - two.plan.started_us).all()


def test_a_stop_ends_the_sending_and_awaits_the_answers(kafka: Broker, tmp_path: Path) -> None:
    load = config(kafka, tmp_path, rate=1_000.0, sessions=600)
    running = Background(load)
    wait_for("500 events to be sent", lambda: running.last.sent > 500)
    running.stop.set()
    summary = running.finish(timeout_s=30)
    assert 500 < summary.sent < 60_000
    assert (summary.acknowledged, summary.unknown, summary.error) == (summary.sent, 0, None)
    ledger = Ledger.open(load.ledger_dir)
    assert (ledger.sent_us > 0).sum() == summary.sent == len(read_topic(kafka, load.topic))


def test_a_missing_topic_is_reported_before_anything_is_written(kafka: Broker, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"there is no topic 'nowhere' at .*\. Create it first"):
        run_load(config(kafka, tmp_path, rate=10.0, sessions=1, topic="nowhere"))
    assert not (tmp_path / "ledger").exists()


def test_a_full_client_queue_makes_events_late_and_loses_none(kafka: Broker, tmp_path: Path) -> None:
    client = {"queue.buffering.max.kbytes": 64, "linger.ms": 50}  # room for some 500 events
    load = config(kafka, tmp_path, rate=200_000.0, sessions=100, client=client)
    summary = run_load(load)
    assert summary.acknowledged == 10_000
    assert summary.lateness_ms.max > 50
    assert_topic_holds_the_ledger_exactly_once(kafka, load)


@pytest.mark.parametrize("rate", [3_000.0, pytest.param("max", marks=pytest.mark.slow)])
def test_a_broker_restart_loses_and_duplicates_nothing(kafka_own: Broker, tmp_path: Path, rate: Any) -> None:
    load = config(kafka_own, tmp_path, rate=rate, sessions=450 if rate != "max" else 6_000)
    running = Background(load)
    wait_for("5,000 events to be acknowledged", lambda: running.last.acknowledged > 5_000)
    kafka_own.kill()
    acknowledged = running.last.acknowledged
    kafka_own.restart()
    summary = running.finish()
    assert acknowledged < load.events, "the broker died too late to matter"
    assert (summary.acknowledged, summary.failed, summary.unknown) == (load.events, 0, 0)
    assert_topic_holds_the_ledger_exactly_once(kafka_own, load)


@pytest.mark.slow
def test_a_client_that_lost_every_address_loses_and_duplicates_nothing(
    kafka_own: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, removed = list[Producer](), list[str]()

    class Logger:
        def log(self, _level: int, _form: str, facility: str, *more: str) -> None:
            if facility == "DESTROY" and "/bootstrap" not in more[-1]:
                removed.append(more[-1])

    def watched(settings: dict[str, Any]) -> Producer:
        made.append(Producer({**settings, "debug": "broker", "logger": Logger()}))
        return made[-1]

    monkeypatch.setattr(client, "Producer", watched)
    load = config(kafka_own, tmp_path, rate=500.0, sessions=100)
    running = Background(load)
    wait_for("500 events to be acknowledged", lambda: running.last.acknowledged > 500)
    lose_addresses(kafka_own, load.topic, made, lambda _: bool(removed))
    assert running.last.acknowledged < load.events, "the broker went away too late to matter"
    summary = running.finish()
    assert (summary.acknowledged, summary.failed, summary.unknown) == (load.events, 0, 0)
    assert_topic_holds_the_ledger_exactly_once(kafka_own, load)


def test_the_schedule_continues_while_the_broker_is_away(kafka_own: Broker, tmp_path: Path) -> None:
    load = config(kafka_own, tmp_path, rate=3_000.0, sessions=450)
    running = Background(load)
    wait_for("3,000 events to be acknowledged", lambda: running.last.acknowledged > 3_000)
    kafka_own.kill()
    killed = running.last
    wait_for("6,000 events to be sent without a broker", lambda: running.last.sent > killed.sent + 6_000)
    away = [status for status in running.statuses if status.t_us > killed.t_us]
    kafka_own.restart()
    summary = running.finish()
    assert all(status.sent > 0.95 * status.planned_by_now for status in away)
    assert away[-1].acknowledged < away[-1].sent - 5_000
    assert (summary.acknowledged, summary.failed) == (load.events, 0)


def test_a_full_queue_without_a_broker_shows_as_lateness(kafka_own: Broker, tmp_path: Path) -> None:
    load = config(kafka_own, tmp_path, rate=3_000.0, sessions=300, client={"queue.buffering.max.messages": 1_000})
    running = Background(load)
    wait_for("3,000 events to be acknowledged", lambda: running.last.acknowledged > 3_000)
    kafka_own.kill()
    wait_for("the lateness to show in the status", lambda: running.last.lateness_p99_ms > 1_000)
    kafka_own.restart()
    summary = running.finish()
    assert summary.lateness_ms.max > 1_000
    assert (summary.acknowledged, summary.failed) == (load.events, 0)
    assert_topic_holds_the_ledger_exactly_once(kafka_own, load)


@pytest.mark.slow
def test_events_that_expire_are_failed_in_the_ledger(kafka_own: Broker, tmp_path: Path) -> None:
    load = config(kafka_own, tmp_path, rate=2_000.0, sessions=100, client={"delivery.timeout.ms": 1_000})
    running = Background(load)
    wait_for("2,000 events to be acknowledged", lambda: running.last.acknowledged > 2_000)
    kafka_own.kill()
    summary = running.finish(timeout_s=60)
    assert summary.failed > 1_000
    assert summary.acknowledged + summary.failed + summary.unknown == summary.sent
    ledger = Ledger.open(load.ledger_dir)
    assert (ledger.acked_us < 0).sum() == summary.failed
    assert (ledger.acked_us > 0).sum() == summary.acknowledged
    assert set(ledger.acked_us[ledger.acked_us < 0].tolist()) <= {-192}, "-192: librdkafka's message time-out"
    assert (ledger.partition[ledger.acked_us < 0] == -1).all()
