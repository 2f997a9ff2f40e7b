"""The Pravega sink in tasks, without a server."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pyarrow as pa
import pytest
from oncebench_pravega import reader, segment_store, writers
from oncebench_pravega.controller import Segments
from oncebench_pravega.segment_store import Chunk, SegmentError, SegmentStore, framed, unframed
from oncebench_pravega.writers import EventWriter
from pravega_fakes import AWAY, SCHEMA, SEGMENT, STREAM, Made, Store, Task, rows, sink

from oncebench.delivery.errors import (
    DeliveryFailed,
    PermanentFailure,
    RecordTooLarge,
    TransactionTooSlow,
)


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


def test_a_row_without_a_value_is_no_event(store: Store, use: Callable[..., Made]) -> None:
    use()
    row = pa.RecordBatch.from_pydict({"key": [b"order-7", b"order-8"], "value": [b"", None]}, SCHEMA)
    with pytest.raises(PermanentFailure, match=r"the row with key 'order-8' has no value \(.*\)\. A restart does"):
        sink().acknowledged_writer().write(Task(), iter([row]))


def test_a_row_that_is_too_large_is_named(
    store: Store, use: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    use()
    monkeypatch.setattr(writers, "EVENT_BYTES", 1000)
    large = pa.RecordBatch.from_pydict({"key": [b"k" * 100, None], "value": [b"x" * 1000, b"x" * 1001]}, SCHEMA)
    with pytest.raises(RecordTooLarge, match=r"batch 7, partition 0: the row with key '' has 1,001 bytes .* 1,000 byt"):
        sink().acknowledged_writer().write(Task(), iter([large]))


def test_a_store_that_is_away_is_an_os_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError):
        SegmentStore("127.0.0.1", port)
