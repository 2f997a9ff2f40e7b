"""The Pravega sink in the driver, and its reader, without a server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from oncebench_pravega import controller as pravega_controller
from oncebench_pravega import reader, segment_store
from oncebench_pravega.controller import VARIABLE, ControllerError, Segments, Stream
from oncebench_pravega.reader import StreamFollower
from oncebench_pravega.segment_store import framed
from pravega_fakes import AWAY, LEASE, SEGMENT, STREAM, TWO_PHASE, Made, Store, Task, rows, sink
from pyspark.sql.types import StringType, StructField, StructType

from oncebench.delivery.errors import (
    CommitRefused,
    CommitUncertain,
    DeliveryFailed,
    PermanentFailure,
    ReadError,
    RefusedStart,
)
from oncebench.sinks.reader import NotAnsweredError


def test_an_event_that_is_not_a_row_has_no_key(store: Store, use: Callable[..., Made]) -> None:
    use()
    store.held = b"".join(data for _, data in framed([b"{", b"[]", b"{}"]))
    shown: list[Any] = []
    reader.read("nowhere:1", STREAM, "session_key").read_to_end(shown.append)
    assert [(key, value) for part in shown for key, value in zip(part.key, part.value, strict=True)] == [
        (None, b"{"), (None, b"[]"), (None, b"{}"),
    ]  # fmt: skip


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


def test_columns_that_make_no_event_are_refused_with_what_an_event_is(use: Callable[..., Made]) -> None:
    use()
    value = StructField("value", StringType())
    for columns in ([value], [StructField("key", StringType()), value, StructField("headers", StringType())]):
        with pytest.raises(RefusedStart, match="An event is the value alone: put into it"):
            sink().check_schema(StructType(columns))
    sink().check_schema(StructType([StructField("key", StringType()), value]))


@pytest.mark.parametrize("text", ["orders", "", "scope/", "/stream", "a/b/c"])
def test_an_output_that_names_no_stream_is_refused(text: str) -> None:
    with pytest.raises(RefusedStart, match=r"is not a Pravega stream\. Name the scope and the stream: SCOPE/STREAM"):
        Stream.named(text)


def test_a_reader_reports_what_it_cannot_read(
    store: Store, use: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer, away_s, says in (
        (Segments((), ""), 60.0, "there is no stream"),
        (Segments((SEGMENT, "scope/stream/1.#epoch.1"), ""), 60.0, "was scaled"),
        (ControllerError("getCurrentSegments", "UNAUTHENTICATED", "no"), 60.0, "cannot be read"),
        (AWAY, 0.0, "Is Pravega running there"),
    ):
        use(segments=[answer])
        monkeypatch.setattr(reader, "AWAY_S", away_s)
        with (
            closing(StreamFollower("nowhere:1", STREAM, "session_key")) as follower,
            pytest.raises(ReadError, match=says),
        ):
            follower.fresh()


def test_a_reader_outlives_a_server_that_is_away_and_returns_no_row_twice(
    store: Store, use: Callable[..., Made]
) -> None:
    use(segments=[AWAY, Segments((SEGMENT,), "")])
    follower = StreamFollower("nowhere:1", STREAM, "session_key")
    store.held = b"".join(data for _, data in framed([b'{"session_key":"a"}', b'{"session_key":"b"}']))
    keys: list[bytes | None] = []
    refusals = [lambda: None, store.drop_idle, lambda: store.refuse_once.append(segment_store.MOVED)]
    with closing(follower):
        for disturb in refusals:
            disturb()
            with pytest.raises(NotAnsweredError):
                follower.fresh()
            keys += follower.fresh().key
    assert keys == [b"a", b"b"]


def test_a_busy_segment_delays_no_other(store: Store, use: Callable[..., Made]) -> None:
    use(segments=[Segments((SEGMENT, "scope/stream/1.#epoch.0"), "")])
    store.held = b"".join(data for _, data in framed([b"{}"] * 3))
    with closing(StreamFollower("nowhere:1", STREAM, "session_key")) as follower:
        assert [follower.fresh().partition for _ in range(7)] == [[0], [1], [0], [1], [0], [1], []]


def test_a_transactions_id_matches_the_controllers_numbers() -> None:
    for name in ("0" * 31 + "1", "80000000000000008000000000000001", "f" * 32, "7" + "f" * 31):
        asked = pravega_controller._request(STREAM, name)
        sent = type(asked).FromString(asked.SerializeToString()).txnId
        assert f"{sent.highBits % 2**64:016x}{sent.lowBits % 2**64:016x}" == name
