"""The Kafka writers: their own limits, their producers, and lost connections."""

from __future__ import annotations

import logging
import socket
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from oncebench.delivery.errors import DeliveryFailed, PermanentFailure
from oncebench.kafka_access.access import KafkaAccess
from oncebench.sinks.kafka.coordinator import Transaction
from oncebench.sinks.kafka.names import Names
from oncebench.sinks.kafka.rows import append, writers
from oncebench.sinks.kafka.rows import transactional as transactional_rows
from oncebench.sinks.kafka.rows.append import Appender
from oncebench.sinks.kafka.rows.marking import Marker
from oncebench.sinks.kafka.rows.produce import Reports, Target, abort_reason, refused
from oncebench.sinks.kafka.rows.transactional import TransactionalProducer, run_in_thread
from oncebench.sinks.kafka.rows.writers import TransactionalWriter
from oncebench.sinks.kafka.sink import KafkaSink
from tests.unit.kafka_access.files import login


@dataclass
class Task:
    batch: int = 7
    partition: int = 1

    def counted(self) -> tuple[int, int]:
        return 0, 0

    def reach(self, _point: str) -> None:
        """No fault."""


class Ready:
    """A producer that has begun its transaction."""

    transaction, producer = Transaction("id", 1, 0), None

    def commit(self) -> None:
        """Done at once."""


class Watched:
    """A producer whose coordinator has gone away; it is `sound` for so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def sound(self) -> bool:
        return self.looks > 0

    def look(self) -> None:
        self.looks -= 1


MARKER = Marker("s.marker.1", "out", 8, "{}")


def test_a_client_that_never_answers_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "MARK_LIMIT_S", 0.05)
    monkeypatch.setattr(writers, "LOOK_S", 0.01)
    writer = TransactionalWriter({}, Names("s", 1, "out"), 60_000, commits=False, ended={}, retired=frozenset())
    stuck = r"^batch 7, partition 1: Kafka's client has not got its marker into the transaction within 0\.05 s"
    with pytest.raises(DeliveryFailed, match=stuck):
        writer._wait(Future(), cast("Any", Watched(1000)), cast("Any", Task()), MARKER)


def test_a_call_in_a_thread_returns_its_result_or_error() -> None:
    assert run_in_thread(lambda: threading.current_thread().daemon).result(5) is True
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: 1 // 0).result(5)


@pytest.mark.parametrize("commits", [True, False], ids=["idempotent", "two-phase"])
def test_the_time_to_prepare_contains_the_wait_for_the_marker(monkeypatch: pytest.MonkeyPatch, commits: bool) -> None:
    took_s = 0.05
    monkeypatch.setattr(TransactionalWriter, "_mark", lambda *_: None)
    monkeypatch.setattr(TransactionalWriter, "_wait", lambda *_: time.sleep(took_s))
    monkeypatch.setattr(writers, "produce_all", lambda *_, **__: 0)
    monkeypatch.setattr(writers, "flush", lambda *_, **__: None)
    client = {"bootstrap.servers": "one:1"}
    writer = TransactionalWriter(client, Names("s", 1, "out"), 60_000, commits=commits, ended={}, retired=frozenset())
    transactional, first = cast("Any", Ready()), cast("Any", None)
    _, timings = writer._write(transactional, cast("Any", Task()), first, iter(()), {})
    assert timings["mark"] >= took_s * 1000
    assert timings["prepare"] >= timings["mark"]


class Refused:
    """The message of a delivery report."""

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"too large"


class Recorded:
    """A producer that records its settings and refuses the first row."""

    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, settings: dict[str, Any]) -> None:
        self.made.append(settings)

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Refused())

    def poll(self, _limit_s: float) -> None: ...

    def flush(self, _limit_s: float) -> int:
        return 0


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr(append, "Producer", Recorded)
    monkeypatch.setattr(append, "_appenders", {})
    monkeypatch.setattr(Recorded, "made", [])
    return Recorded.made


def appended(servers: str, acknowledged: bool, *records: bytes, topic: str = "out", **login: str) -> None:
    rows = pa.record_batch({"key": [b"k"] * len(records), "value": list(records)})
    writer = Appender({"bootstrap.servers": servers, **login}, Target(topic, servers), acknowledged)
    writer.write(cast("Any", Task()), iter([rows] if records else []))


def test_each_cluster_has_a_producer_of_its_own(recorded: list[dict[str, Any]]) -> None:
    for servers in ("one:1", "other:1", "one:1"):
        appended(servers, True)
    assert [made["bootstrap.servers"] for made in recorded] == ["one:1", "other:1"]


def test_each_login_has_a_producer_of_its_own(recorded: list[dict[str, Any]]) -> None:
    for user, password in (("one", "a"), ("other", "a"), ("one", "a"), ("one", "changed")):
        appended("one:1", True, **{"sasl.username": user, "sasl.password": password})
    assert [made["sasl.username"] for made in recorded] == ["one", "other", "one"]


def test_each_topic_has_a_producer_of_its_own(recorded: list[dict[str, Any]]) -> None:
    for topic in ("out", "other", "out"):
        appended("one:1", True, topic=topic)
    assert len(recorded) == 2


def test_a_newer_driver_drops_the_producers_of_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {Names(sink_id, generation, "out").own_prefix: [] for sink_id in ("a", "b") for generation in (1, 2, 3)}
    monkeypatch.setattr(writers, "_producers", known)
    writers._forget_older(Names("a", 2, "out"))
    assert sorted(known) == ["a.txn.g2.", "a.txn.g3.", "b.txn.g1.", "b.txn.g2.", "b.txn.g3."]


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_producer_that_saw_an_error_is_never_used_again(recorded: list[dict[str, Any]], acknowledged: bool) -> None:
    with pytest.raises(DeliveryFailed) if acknowledged else nullcontext():
        appended("one:1", acknowledged, b"too large")
    appended("one:1", acknowledged)
    assert len(recorded) == 2


class Begins:
    """A transactional producer whose transactions do not begin."""

    made: ClassVar[list[Begins]] = []
    name, sound, waits, lacks_marker, open_batch, used_at = "id", True, False, False, None, 0.0
    fails: ClassVar[Exception]

    def __init__(self, *_: Any) -> None:
        self.made.append(self)
        self.producer = self

    def look(self) -> None: ...

    def open_for_s(self) -> float:
        return 0.0

    def begin(self, _batch: int) -> None:
        raise self.fails


@pytest.mark.parametrize(
    "error",
    [KafkaException(KafkaError(KafkaError._TIMED_OUT)), OSError("no more threads")],
    ids=["of Kafka", "another"],
)
def test_a_transactional_producer_that_saw_an_error_is_never_used_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(writers, "TransactionalProducer", Begins)
    monkeypatch.setattr(writers, "_producers", {})
    monkeypatch.setattr(Begins, "made", [])
    monkeypatch.setattr(Begins, "fails", error, raising=False)
    writer = TransactionalWriter({}, Names("s", 1, "out"), 60_000, commits=True, ended={}, retired=frozenset())
    monkeypatch.setattr(Begins, "used_at", float("inf"))
    for batch in (7, 8):
        with pytest.raises(DeliveryFailed if isinstance(error, KafkaException) else OSError):
            writer.write(cast("Any", Task(batch)), iter([pa.record_batch({})]))
    assert len(Begins.made) == 2


def test_a_task_without_rows_begins_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "TransactionalProducer", Begins)
    monkeypatch.setattr(writers, "_producers", {})
    monkeypatch.setattr(Begins, "fails", AssertionError("begun"), raising=False)
    writer = TransactionalWriter({}, Names("s", 1, "out"), 60_000, commits=False, ended={}, retired=frozenset())
    assert writer.write(cast("Any", Task()), iter(())) == ({}, {})


def test_a_transaction_begins_once_per_batch() -> None:
    begun: list[int] = []
    made = TransactionalProducer.__new__(TransactionalProducer)
    made.producer, made.open_batch = cast("Any", SimpleNamespace(begin_transaction=lambda: begun.append(1))), None
    for batch in (7, 7, 8):
        made.begin(batch)
    assert (len(begun), made.open_batch) == (2, 8)
    assert made.open_for_s() > 0
    made.open_batch = None
    assert made.open_for_s() == 0


class Failed(Recorded):
    """A client that may send nothing: it fails for good, and reports rows only because of that."""

    reported: ClassVar[int] = KafkaError._PURGE_QUEUE
    reason: ClassVar[int] = KafkaError.CLUSTER_AUTHORIZATION_FAILED

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        on_delivery(KafkaError(self.reported), Refused())

    def flush(self, _limit_s: float) -> int:
        raise SystemError("a result with an exception set") from KafkaException(KafkaError(self.reason))


def test_a_client_that_failed_for_good_fails_the_task_with_its_own_reason(
    recorded: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "Producer", Failed)
    with pytest.raises(
        PermanentFailure, match=r"0 of 1 rows .*may write no topic.*--operation Write --topic out, then"
    ):
        appended("one:1", True, b"row")
    assert append._appenders == {}
    assert recorded


class Aborted:
    """A producer whose transaction was aborted by an error."""

    code: ClassVar[int] = KafkaError.TOPIC_AUTHORIZATION_FAILED

    def begin_transaction(self) -> None:
        raise KafkaException(KafkaError(self.code))


def test_a_marker_of_an_aborted_transaction_fails_with_the_error_that_aborted_it() -> None:
    writer = TransactionalWriter({}, Names("s", 1, "out"), 60_000, commits=True, ended={}, retired=frozenset())
    wrong_state = KafkaException(KafkaError(KafkaError._STATE))
    transactional = cast("Any", SimpleNamespace(producer=Aborted(), lacks_marker=False, open_for_s=lambda: 0.0))
    said = writer._failed(cast("Any", Task()), wrong_state, transactional)
    assert isinstance(said, PermanentFailure)
    assert "--operation Write --topic out, then" in str(said)
    assert not isinstance(writer._failed(cast("Any", Task()), wrong_state, None), PermanentFailure)


@pytest.mark.parametrize("lacks_marker", [False, True])
def test_a_longer_time_out_is_not_advised_if_the_time_went_by_waiting_for_a_marker(lacks_marker: bool) -> None:
    writer = TransactionalWriter({}, Names("s", 1, "out"), 60_000, commits=True, ended={}, retired=frozenset())
    made = SimpleNamespace(producer=Aborted(), lacks_marker=lacks_marker, open_for_s=lambda: 61.0)
    said = writer._failed(cast("Any", Task()), DeliveryFailed("no marker."), cast("Any", made))
    assert ("transaction_timeout_ms" in str(said)) is not lacks_marker


def test_the_error_that_aborted_a_transaction_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = abort_reason(cast("Any", Aborted()))
    assert reason is not None
    assert reason.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    monkeypatch.setattr(Aborted, "code", KafkaError._STATE)
    assert abort_reason(cast("Any", Aborted())) is None, "a transaction that no error has aborted"


def test_the_error_that_aborted_a_transaction_is_asked_for_until_its_marker_call_ends() -> None:
    class Marking(Aborted):
        codes: ClassVar = [KafkaError._CONFLICT, KafkaError._CONFLICT, KafkaError.TOPIC_AUTHORIZATION_FAILED]

        def begin_transaction(self) -> None:
            raise KafkaException(KafkaError(self.codes.pop(0)))

    reason = abort_reason(cast("Any", Marking()))
    assert reason is not None
    assert reason.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("key", "advice"), [(b"k", "the record's time"), (None, "a compacted topic takes no record without a key")]
)
def test_a_record_that_the_broker_could_not_validate_is_told_from_others_of_its_batch(
    key: bytes | None, advice: str
) -> None:
    reports = Reports()
    reports.refused(KafkaError(KafkaError._INVALID_DIFFERENT_RECORD), b"other", b"v")
    reports.refused(KafkaError(KafkaError.INVALID_RECORD), key, b"value")
    said = refused(reports, Target("out", "localhost:1"), cast("Any", Task()), sent=2)
    assert isinstance(said, PermanentFailure)
    assert advice in str(said)
    assert "value 5" in str(said)


def test_rows_that_at_most_once_could_not_send_are_logged(
    recorded: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    appended("one:1", False, b"too large", b"too large as well")
    assert "batch 7, partition 1: 2 of 2 rows were not sent to topic out" in caplog.text
    assert "MSG_SIZE_TOO_LARGE" in caplog.text
    caplog.clear()
    appended("one:1", False)
    assert (len(recorded), caplog.text) == (2, "")


def test_librdkafka_logs_a_lost_connection_as_fail() -> None:
    """`TransactionalProducer.log` counts these lines.

    They are the only report of a connection that was lost.
    """
    transactional = TransactionalProducer.__new__(TransactionalProducer)
    transactional._failures, transactional.sound = 0, True
    with socket.create_server(("127.0.0.1", 0)) as server:

        def cut() -> None:
            connection, _ = server.accept()
            connection.recv(1)
            connection.close()

        cutting = run_in_thread(cut)
        servers = f"127.0.0.1:{server.getsockname()[1]}"
        producer = Producer(
            {"bootstrap.servers": servers, "reconnect.backoff.ms": 60_000, "reconnect.backoff.max.ms": 60_000,
             "debug": "broker", "logger": transactional}
        )  # fmt: skip
        cutting.result(10)
        deadline = time.monotonic() + 10
        while transactional._failures == 0 and time.monotonic() < deadline:
            producer.poll(0.05)
        assert transactional._failures > 0  # the server still listens: no attempt to connect has failed


def test_a_producer_that_is_not_used_again_ends_its_debug_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker's thread may write them for ever, and nobody reads them."""
    ended_debug: list[object] = []
    monkeypatch.setattr(transactional_rows, "end_debug", ended_debug.append)
    transactional = TransactionalProducer.__new__(TransactionalProducer)
    transactional._failures, transactional.sound, transactional.producer = (
        0,
        True,
        Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}),
    )
    transactional.look()
    assert not ended_debug
    transactional.log(logging.DEBUG, "%s", "DESTROY", "127.0.0.1:1/1: removed")
    transactional.look()
    assert ended_debug == [transactional.producer]


def test_the_text_of_a_task_shows_no_secret() -> None:
    """Spark and Python print tasks in errors."""
    secured = {**login("PLAIN", "alice", "canary-7f3a"), "security.protocol": "SASL_PLAINTEXT", "log_level": "0"}
    sink = KafkaSink("out", "it", 1, KafkaAccess("127.0.0.1:9", settings=secured).client, 60_000, "")
    sink._next_check_at = float("inf")
    tasks = (sink.unacknowledged_writer(), sink.warm_up_writer(), sink.prepare_writer())
    assert [f"{task}".count("alice") for task in tasks] == [1, 1, 1]
    assert [task for task in tasks if "canary" in f"{task}"] == []
