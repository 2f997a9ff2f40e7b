"""The Pravega sink without a server: a small store and a simulated controller."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import orjson
import pyarrow as pa
import pytest
from oncebench_pravega import controller as pravega_controller
from oncebench_pravega import reader, segment_store, writers
from oncebench_pravega import sink as pravega
from oncebench_pravega.controller import VARIABLE, Controller, ControllerError, Segments, Stream, Transaction
from oncebench_pravega.segment_store import Chunk, SegmentError, SegmentStore, framed, unframed
from oncebench_pravega.sink import PravegaSink
from oncebench_pravega.writers import EventWriter

from oncebench.delivery.contract import EXACTLY_ONCE, Support
from oncebench.delivery.errors import (
    CommitRefused,
    CommitUncertain,
    DeliveryFailed,
    PermanentFailure,
    ReadError,
    RefusedStart,
    TransactionTooSlow,
)

STREAM = Stream("scope", "stream")
SEGMENT = "scope/stream/0.#epoch.0"
AWAY = ControllerError("getURI", "UNAVAILABLE", "gone")
LEASE = ControllerError("createTransaction", "UNKNOWN", "lease value too large, max value is 600000")
TWO_PHASE = Support(EXACTLY_ONCE, "two-phase", "")
HEADER = struct.Struct(">ii")


class Store:
    """A segment store that keeps appended bytes; `refuse` sets another answer."""

    def __init__(self) -> None:
        self.held = b""
        self.refuse: int | None = None
        self.refuse_once: list[int] = []
        self.cut = False
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def drop_idle(self) -> None:
        """Closes every connection, as a load balancer does after some silent minutes."""
        while self.connections:
            self.connections.pop().shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(ConnectionError), connection, connection.makefile("rb") as taken:
            while head := taken.read(8):
                kind, length = HEADER.unpack(head)
                answer = self._answer(kind, taken.read(length))
                if self.cut and kind != -127:
                    break
                connection.sendall(answer)

    def _answer(self, kind: int, payload: bytes) -> bytes:
        if self.refuse_once and kind == 1:
            return HEADER.pack(self.refuse_once.pop(0), 0)
        if self.refuse is not None and kind not in (-127, 3):
            return HEADER.pack(self.refuse, 0)
        if kind == -127:
            return HEADER.pack(-127, 8) + payload + HEADER.pack(100, 0)  # and a keep-alive, which means nothing
        if kind == 1:
            return HEADER.pack(2, 0)
        if kind == 3:
            self.held += payload[16:]
            return b""
        if kind == 4:
            return self._framed(7, payload[:16], payload[16 + 12 : 16 + 20])
        name = 2 + len(SEGMENT)
        if kind == 11:
            return self._framed(12, payload[: 8 + name], b"\x01\0\0", struct.pack(">qqq", 0, len(self.held), 0))
        assert kind == 9
        offset, length = struct.unpack_from(">qi", payload, name)
        data = self.held[offset : offset + min(length, 7)]  # in small pieces: an event comes in several
        return self._framed(10, payload[:name], struct.pack(">q??i", offset, False, False, len(data)), data, b"\0" * 8)

    def _framed(self, kind: int, *parts: bytes) -> bytes:
        return HEADER.pack(kind, sum(map(len, parts))) + b"".join(parts)


class Made(Controller):
    """A controller with a given answer or error for each call."""

    def __init__(self, store: Store | None = None, **answers: Any) -> None:
        self.address = "nowhere:1"
        self.asked: list[str] = []
        self._store, self._answers = store, answers

    def segments(self, stream: Stream) -> Segments:
        return self._say("segments", Segments((SEGMENT,), ""))

    def home(self, segment: str) -> tuple[str, int]:
        assert self._store is not None
        return "127.0.0.1", self._store.port

    def begin(self, stream: Stream, lease_ms: int) -> Transaction:
        return self._say("begin", Transaction("a" * 32, Segments((SEGMENT,), "")))

    def commit(self, stream: Stream, transaction: str) -> bool:
        return self._say("commit", True)

    def abort(self, stream: Stream, transaction: str) -> bool:
        return self._say("abort", True)

    def state(self, stream: Stream, transaction: str) -> int:
        return self._say("state", pravega_controller.COMMITTED)

    def close(self) -> None:
        """There is nothing to close."""

    def _say(self, call: str, default: Any) -> Any:
        self.asked.append(call)
        answers = self._answers.get(call, [default])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Task:
    """A task of batch 7, partition 0."""

    batch, partition = 7, 0

    def __init__(self, reach: Callable[[str], None] = lambda point: None) -> None:
        self.reach = reach

    def counted(self) -> tuple[int, int]:
        return 0, 0


def rows(*keys: str) -> pa.RecordBatch:
    values = [json.dumps({"session_key": key, "j": 1}).encode() for key in keys]
    return pa.RecordBatch.from_pydict({"key": [key.encode() for key in keys], "value": values})


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.close()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, store: Store) -> Callable[..., Made]:
    """Replaces every controller by a simulated one."""

    def used(**answers: Any) -> Made:
        made = Made(store, **answers)
        for module in (pravega, reader, writers):
            monkeypatch.setattr(module, "Controller", lambda address: made)
        monkeypatch.setattr(writers, "_controllers", {})
        monkeypatch.setattr(writers, "_homes", {})
        monkeypatch.setattr(writers, "_stores", {})
        monkeypatch.setattr(pravega, "COMMIT_LIMIT_S", 0.2)
        monkeypatch.setattr(writers, "READY_LIMIT_S", 60.0)
        monkeypatch.setattr(writers, "READY_PAUSE_S", 0.01)
        monkeypatch.setenv(VARIABLE, made.address)
        return made

    return used


def sink() -> PravegaSink:
    return PravegaSink(STREAM, 2, 60_000)


def test_events_are_framed_in_blocks_and_read_back() -> None:
    events = [b"a", b"", b"x" * segment_store.BLOCK_BYTES, b"end"]
    blocks = list(framed(events))
    assert [count for count, _ in blocks] == [3, 1]
    whole = b"".join(data for _, data in blocks)
    found, reached = unframed(Chunk(100, whole))
    assert [event for _, event in found] == events
    assert [offset for offset, _ in found[:3]] == [100, 109, 117]
    assert reached == 100 + len(whole)
    assert unframed(Chunk(0, whole[:12])) == ([(0, b"a")], 9)


def test_what_is_appended_and_acknowledged_is_read_with_its_offsets(store: Store, use: Callable[..., Made]) -> None:
    use()
    prepared, timings = EventWriter("nowhere:1", STREAM).write(Task(), iter([rows("a", "line\nbreak"), rows("\x00")]))
    assert (prepared, set(timings)) == ({}, {"begin", "prepare"})
    shown: list[Any] = []
    report = reader.read("nowhere:1", STREAM, "session_key").read_to_end(shown.append)
    assert report.complete
    assert [key for part in shown for key in part.key] == [b"a", b"line\nbreak", b"\x00"]
    assert [orjson.loads(value)["j"] for part in shown for value in part.value] == [1, 1, 1]
    offsets = [offset for part in shown for offset in part.offset]
    assert offsets == sorted(offsets)
    assert offsets[0] == 0


def test_an_event_that_is_not_a_row_has_no_key(store: Store, use: Callable[..., Made]) -> None:
    use()
    store.held = b"".join(data for _, data in framed([b"{", b"[]", b"{}"]))
    shown: list[Any] = []
    reader.read("nowhere:1", STREAM, "session_key").read_to_end(shown.append)
    assert [(key, value) for part in shown for key, value in zip(part.key, part.value, strict=True)] == [
        (None, b"{"), (None, b"[]"), (None, b"{}"),
    ]  # fmt: skip


def test_a_task_leaves_its_transaction_open_and_names_it(use: Callable[..., Made]) -> None:
    made = use()
    prepared, _ = sink().prepare_writer().write(Task(), iter([rows("a")]))
    assert prepared == {"transaction": "a" * 32}
    assert made.asked == ["begin"]


def test_a_partition_without_rows_begins_no_transaction(use: Callable[..., Made]) -> None:
    made = use()
    passed: list[str] = []
    assert sink().prepare_writer().write(Task(passed.append), iter([])) == ({}, {})
    assert (made.asked, passed) == ([], ["before-prepare", "after-prepare"])


@pytest.mark.parametrize("kind", [51, 53, 999])
def test_a_store_that_refuses_fails_the_batch_and_the_connection_is_not_used_again(
    store: Store, use: Callable[..., Made], kind: int
) -> None:
    use()
    store.refuse = kind
    with pytest.raises(DeliveryFailed, match=r"batch 7, partition 0: .*A restart of the pipeline writes") as failed:
        sink().prepare_writer().write(Task(), iter([rows("a")]))
    assert isinstance(failed.value.__cause__, SegmentError)
    assert writers._stores == {}


@pytest.mark.parametrize("kind", [51, 53])
@pytest.mark.parametrize(("lease_ms", "slow"), [(1, True), (60_000, False), (None, False)])
def test_a_batch_longer_than_the_lease_names_the_lease(
    store: Store, use: Callable[..., Made], kind: int, lease_ms: int | None, slow: bool
) -> None:
    use()

    def last_row_comes_late() -> Iterator[pa.RecordBatch]:
        yield rows("a")
        time.sleep(0.005)
        store.refuse = kind

    with pytest.raises(DeliveryFailed) as failed:
        EventWriter("nowhere:1", STREAM, lease_ms).write(Task(), last_row_comes_late())
    assert isinstance(failed.value, TransactionTooSlow) == slow
    assert ("transaction_timeout_ms, here 1: raise it. max_events_per_batch, or maxOff" in str(failed.value)) == slow
    assert ("A restart of the pipeline writes" in str(failed.value)) != slow


def test_a_store_that_goes_away_fails_the_batch(
    store: Store, use: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    use()
    monkeypatch.setattr(writers, "READY_LIMIT_S", 0.0)
    store.cut = True
    with pytest.raises(DeliveryFailed, match="closed the connection"):
        sink().acknowledged_writer().write(Task(), iter([rows("a")]))


@pytest.mark.parametrize("lease_ms", [None, 60_000])
def test_a_connection_that_was_cut_between_two_batches_costs_no_row(
    store: Store, use: Callable[..., Made], lease_ms: int | None
) -> None:
    use()
    writer = EventWriter("nowhere:1", STREAM, lease_ms)
    writer.write(Task(), iter([rows("a")]))
    store.drop_idle()
    writer.write(Task(), iter([rows("b")]))
    assert [orjson.loads(event)["session_key"] for _, event in unframed(Chunk(0, store.held))[0]] == ["a", "b"]


def test_what_comes_before_the_first_row_is_repeated(store: Store, use: Callable[..., Made]) -> None:
    use(segments=[AWAY, Segments((SEGMENT,), "")])
    store.refuse_once = [segment_store.MOVED, segment_store.MOVED]
    EventWriter("nowhere:1", STREAM).write(Task(), iter([rows("a")]))
    assert len(unframed(Chunk(0, store.held))[0]) == 1
    assert len(store.connections) == 3, "the segment's store is looked up again"


def test_a_row_that_was_sent_is_not_sent_again(store: Store, use: Callable[..., Made]) -> None:
    use()

    def cut_before_the_last_row() -> Iterator[pa.RecordBatch]:
        yield rows("a")
        store.drop_idle()

    with pytest.raises(DeliveryFailed):
        EventWriter("nowhere:1", STREAM).write(Task(), cut_before_the_last_row())
    assert len(store.connections) == 0, "no second connection"


def test_a_silent_connection_is_kept_open(store: Store) -> None:
    opened = SegmentStore("127.0.0.1", store.port)
    assert opened._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert opened._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == segment_store.KEEP_ALIVE_S
    opened.close()


def test_a_task_that_dies_leaves_no_connection_with_answers_still_to_come(use: Callable[..., Made]) -> None:
    use()

    def die(point: str) -> None:
        raise KeyboardInterrupt(point)

    with pytest.raises(KeyboardInterrupt):
        sink().prepare_writer().write(Task(die), iter([rows("a")]))
    assert writers._stores == {}


def test_a_commit_waits_until_the_rows_are_visible(use: Callable[..., Made]) -> None:
    made = use(state=[pravega_controller.COMMITTING, pravega_controller.COMMITTING, pravega_controller.COMMITTED])
    assert sink().commit(7, {0: {"transaction": "a" * 32}, 1: {"transaction": "b" * 32}}) == set()
    assert made.asked == ["commit", "commit", "state", "state", "state", "state"]


@pytest.mark.parametrize("state", [pravega_controller.ABORTING, pravega_controller.ABORTED])
def test_a_transaction_whose_lease_ended_is_lost(use: Callable[..., Made], state: int) -> None:
    use(commit=[True, False], state=[pravega_controller.COMMITTED, state])
    assert sink().commit(7, {0: {"transaction": "a" * 32}, 1: {"transaction": "b" * 32}}) == {1}


def test_a_repeated_commit_is_done(use: Callable[..., Made]) -> None:
    use(commit=[False], state=[pravega_controller.COMMITTED])
    assert sink().commit(7, {0: {"transaction": "a" * 32}}) == set()


def test_a_commit_that_was_not_accepted_is_repeated(use: Callable[..., Made]) -> None:
    made = use(commit=[False, True], state=[pravega_controller.OPEN, pravega_controller.COMMITTED])
    assert sink().commit(7, {0: {"transaction": "a" * 32}}) == set()
    assert made.asked == ["commit", "state", "commit", "state"]


def test_a_forgotten_transaction_is_not_guessed(
    use: Callable[..., Made],
) -> None:
    use(commit=[False], state=[pravega_controller.UNKNOWN])
    with pytest.raises(CommitRefused, match=r"If none of the batch's rows is .*journal/decision-000000007\."):
        sink().commit(7, {0: {"transaction": "a" * 32}})


def test_a_request_is_repeated_until_an_answer_or_the_limit(use: Callable[..., Made]) -> None:
    use(commit=[AWAY, AWAY, True])
    assert sink().commit(7, {0: {"transaction": "a" * 32}}) == set()
    use(commit=[AWAY])
    with pytest.raises(CommitUncertain, match="could not be asked"):
        sink().commit(7, {0: {"transaction": "a" * 32}})
    use(state=[pravega_controller.COMMITTING])
    with pytest.raises(CommitUncertain, match=r"was not merged within 0\.2 s"):
        sink().commit(7, {0: {"transaction": "a" * 32}})


def test_a_start_tests_the_stream_and_the_lease(use: Callable[..., Made], monkeypatch: pytest.MonkeyPatch) -> None:
    made = use()
    sink().start(TWO_PHASE, 1, [])
    assert made.asked == ["segments", "begin", "abort"]
    for answers, says in (
        ({"segments": [Segments((), "")]}, "there is no stream scope/stream"),
        ({"begin": [LEASE]}, "Set transaction_timeout_ms to a value between"),
    ):
        use(**answers)
        with pytest.raises(RefusedStart, match=says):
            sink().start(TWO_PHASE, 1, [])
    use(segments=[AWAY])
    with pytest.raises(
        DeliveryFailed, match=r"did not answer a request of the start \(getURI: UNAVAILABLE, gone\)"
    ) as away:
        sink().start(TWO_PHASE, 1, [])
    assert away.value.restart_helps
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(RefusedStart, match=VARIABLE):
        sink()


@pytest.mark.parametrize(
    "away",
    [
        ControllerError("getCurrentSegments", "UNAVAILABLE", "errors resolving my-release-pravega-controller:9090"),
        ControllerError("createTransaction", "UNAVAILABLE", "errors resolving my-release-pravega-controller:9090"),
        ControllerError("createTransaction", "UNKNOWN", "the store failed"),
        ControllerError("getCurrentSegments", "INTERNAL", "Internal exception occurred"),
    ],
    ids=str,
)
def test_an_outage_at_a_start_is_no_refusal_whatever_its_words(use: Callable[..., Made], away: ControllerError) -> None:
    use(**{"begin" if away.call == "createTransaction" else "segments": [away]})
    with pytest.raises(DeliveryFailed, match="did not answer a request of the start") as failed:
        sink().start(TWO_PHASE, 1, [])
    assert failed.value.restart_helps


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "INVALID_ARGUMENT"])
def test_what_the_controller_will_always_refuse_ends_the_job_for_good(use: Callable[..., Made], code: str) -> None:
    refusal = ControllerError("getCurrentSegments", code, "no")
    use(segments=[refusal], commit=[refusal])
    with pytest.raises(RefusedStart, match=rf"refuses the stream scope/stream \(getCurrentSegments: {code}, no: "):
        sink().start(TWO_PHASE, 1, [])
    for writer in (sink().acknowledged_writer(), sink().warm_up_writer()):
        with pytest.raises(PermanentFailure, match=r"A restart does not help\. .*, then start again\."):
            writer.write(Task(), iter([rows("a")]))
    with pytest.raises(CommitRefused, match=r"refuses to end a transaction .* The batch is decided"):
        sink().commit(7, {0: {"transaction": "a" * 32}})


@pytest.mark.parametrize("text", ["orders", "", "scope/", "/stream", "a/b/c"])
def test_an_output_that_names_no_stream_is_refused(text: str) -> None:
    with pytest.raises(RefusedStart, match=r"names no stream of Pravega\. Name the scope and the stream: SCOPE/STREAM"):
        Stream.named(text)


def test_a_reader_reports_what_it_cannot_read(store: Store, use: Callable[..., Made]) -> None:
    for answer, says in (
        (Segments((), ""), "there is no stream"),
        (Segments((SEGMENT, "scope/stream/1.#epoch.1"), ""), "was scaled"),
        (AWAY, "Is Pravega running there"),
    ):
        use(segments=[answer])
        with pytest.raises(ReadError, match=says):
            reader.read("nowhere:1", STREAM, "session_key")


def test_a_store_that_is_away_is_an_os_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError):
        SegmentStore("127.0.0.1", port)


def test_a_transactions_id_matches_the_controllers_numbers() -> None:
    for name in ("0" * 31 + "1", "80000000000000008000000000000001", "f" * 32, "7" + "f" * 31):
        asked = pravega_controller._request(STREAM, name)
        sent = type(asked).FromString(asked.SerializeToString()).txnId
        assert f"{sent.highBits % 2**64:016x}{sent.lowBits % 2**64:016x}" == name
