"""The Kafka sink on a real broker, without Spark.

There are one worker and several drivers. The tests show what each driver may still do.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer

from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, RefusedStart
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.kafka.names import Names
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.kafka.rows import writers
from oncebench.sinks.kafka.sink import KafkaSink
from tests.integration.sinks.kafka_output import TIMEOUT_MS, VARIANTS, Output, Task, rows, support, wait_for_rows, write
from tests.reading import read_all
from tests.waiting import wait_for

pytestmark = pytest.mark.integration
# For tests that let a transaction run out; the shared broker looks for such ones often (QUICK_ABORTS).
SHORT_MS = 1000
RECORD_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def output(kafka: KafkaBroker) -> Iterator[Output]:
    writers._producers.clear()
    yield Output(kafka)
    writers._producers.clear()


def die() -> None:
    """A kill -9 of the worker: its producer is gone, its transaction stays open."""
    writers._producers.clear()


def committed_and_then_prepared(output: Output) -> tuple[dict[str, Any], dict[str, Any]]:
    """A driver commits batch 8, prepares batch 9 in the same worker, and dies.

    Returns the prepared work of the two batches.
    """
    first = output.driver("two-phase", 1)
    eighth = write(first.prepare_writer(), 8, "eight")
    assert first.commit(8, {0: eighth}) == set()
    ninth = write(first.prepare_writer(), 9, "nine")
    assert ninth["transactional_id"] == eighth["transactional_id"], "or this test would show nothing"
    die()
    return {**eighth, "batch": 8, "partition": 0}, ninth


def test_an_undecided_transaction_under_the_id_of_a_finished_decision_is_aborted_at_the_start(output: Output) -> None:
    eighth, _ = committed_and_then_prepared(output)
    started = time.monotonic()
    second = output.driver("two-phase", 2, [eighth])
    assert second.marks()[0].batch == 8
    assert second.commit(9, {0: write(second.prepare_writer(), 9, "nine")}) == set()
    wait_for_rows(output, {"eight": 20, "nine": 20})
    assert time.monotonic() - started < TIMEOUT_MS / 2000, "it had waited for the transaction's time-out"


def test_a_finished_decision_that_is_replayed_does_not_commit_what_its_id_holds_now(output: Output) -> None:
    eighth, _ = committed_and_then_prepared(output)
    # Spark's commit log lost batch 8 in a power cut; the journal, fsynced, has its decision.
    second = output.driver("two-phase", 2, [eighth])
    assert second.commit(8, {0: eighth}) == set()
    assert second.commit(9, {0: write(second.prepare_writer(), 9, "nine")}) == set()
    wait_for_rows(output, {"eight": 20, "nine": 20})


def test_a_decision_that_appears_during_the_start_under_the_id_of_a_finished_one_is_lost_and_not_taken_for_done(
    output: Output,
) -> None:
    eighth, ninth = committed_and_then_prepared(output)
    # Found by the model in oncebench/protocol_model: the first driver's decision of batch 9 was on its way to the disk.
    second = output.driver("two-phase", 2, [eighth])
    assert second.commit(9, {0: ninth}) == {0}, "what the start has fenced must be written again"
    assert second.commit(9, {0: write(second.prepare_writer(), 9, "nine")}) == set()
    wait_for_rows(output, {"eight": 20, "nine": 20})


def test_a_producer_that_lost_its_connection_in_a_commit_is_not_used_again(output: Output) -> None:
    driver = output.driver("two-phase", 1)
    eighth = write(driver.prepare_writer(), 8, "eight")
    assert driver.commit(8, {0: eighth}) == set()
    ((transactional,),) = writers._producers.values()
    real = transactional.producer

    class Reconnecting:
        """The client asks a second time by itself; the first request may still be on its way."""

        def commit_transaction(self, limit_s: float) -> None:
            real.commit_transaction(limit_s)
            transactional.log(20, "%s [%s] %s", "FAIL", "producer", "Disconnected")

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    transactional.producer = Reconnecting()
    ninth = write(driver.prepare_writer(), 9, "nine")
    assert ninth["transactional_id"] != eighth["transactional_id"]
    assert driver.commit(9, {0: ninth}) == set()
    wait_for_rows(output, {"eight": 20, "nine": 20})


def test_a_decision_that_was_not_committed_outlives_the_start_and_is_committed_after_it(output: Output) -> None:
    first = output.driver("two-phase", 1)
    prepared = write(first.prepare_writer(), 8, "eight")
    die()
    second = output.driver("two-phase", 2, [{**prepared, "batch": 8, "partition": 0}])
    assert second.marks() == {}
    assert output.visible() == {}
    assert second.commit(8, {0: prepared}) == set()
    wait_for_rows(output, {"eight": 20})


@pytest.mark.parametrize("variant", ["acknowledged", "two-phase"])
def test_a_record_keeps_its_headers_and_a_null_key_and_value(output: Output, variant: str) -> None:
    driver = output.driver(variant, 1)
    headers = pa.array([[("trace", b"\x00"), ("empty", None)], [], None], RECORD_HEADERS)
    keys, values = pa.array([b"k", None, b""]), pa.array([None, b"{}", b""])
    records = pa.record_batch({"key": keys, "value": values, "headers": headers})
    writer = driver.prepare_writer() if variant == "two-phase" else driver.acknowledged_writer()
    prepared = dict(writer.write(Task(0), iter([records]))[0])
    if variant == "two-phase":
        assert driver.commit(0, {0: prepared}) == set()
    read = read_all(KafkaReader(output.servers, output.topic), settle_s=60)
    assert list(zip(read.key, read.value, strict=True)) == [(b"k", None), (None, b"{}"), (b"", b"")]
    assert [[tuple(each) for each in record or ()] for record in read.headers] == [
        [("trace", b"\x00"), ("empty", None)],
        [],
        [],
    ]


def test_a_worker_of_an_older_driver_that_begins_late_writes_nothing(output: Output) -> None:
    late = output.driver("idempotent", 1).idempotent_writer()
    write(output.driver("idempotent", 2).idempotent_writer(), 7, "seven")
    with pytest.raises(AnotherDriver, match="generation 2"):
        write(late, 7, "seven")
    wait_for_rows(output, {"seven": 20})


@pytest.mark.parametrize("generation", [1, 2])
def test_a_start_by_an_older_journal_is_refused_before_it_fences_or_writes(output: Output, generation: int) -> None:
    newest = output.driver("two-phase", 3)
    with pytest.raises(RefusedStart, match=rf"counts {generation} starts, and the cluster 3 .* older copy"):
        output.driver("two-phase", generation)
    assert newest.commit(8, {0: write(newest.prepare_writer(), 8, "eight")}) == set()
    wait_for_rows(output, {"eight": 20})


def test_a_checkpoint_that_was_put_back_after_a_start_without_it_was_refused_goes_on(output: Output) -> None:
    output.driver("two-phase", 3)  # published, and then refused for a damaged checkpoint
    again = output.driver("two-phase", 3)
    assert again.commit(8, {0: write(again.prepare_writer(), 8, "eight")}) == set()
    wait_for_rows(output, {"eight": 20})


def test_a_generation_that_could_not_be_published_refuses_the_start(output: Output, kafka: KafkaBroker) -> None:
    other = kafka.fresh_topic("other", 1)
    settings = {"bootstrap.servers": output.servers, "group.id": f"{output.sink_id}.generation"}
    with closing(Consumer(settings)) as member:
        member.subscribe([other])
        wait_for("the member to have joined", lambda: member.poll(0.1) is None and bool(member.assignment()))
        with pytest.raises(RefusedStart, match="Stop its consumers"):
            output.driver("idempotent", 2)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("name", "why"),
    [("there-is-none", "does not exist"), ("bad name é", "not allow"), ("", "not allow"), ("..", "not allow")],
)
def test_a_topic_that_takes_no_record_refuses_the_start_under_every_guarantee(
    output: Output, variant: str, name: str, why: str
) -> None:
    quarantined = KafkaSink(output.topic, output.sink_id, 1, {"bootstrap.servers": output.servers}, TIMEOUT_MS, name)
    if name:
        with pytest.raises(RefusedStart, match=f"^the quarantine topic '{re.escape(name)}' .*{why}"):
            quarantined.start(support(variant), 1, [])
    output.topic = name
    with pytest.raises(RefusedStart, match=f"^the output topic '{re.escape(name)}' .*{why}.*start again"):
        output.driver(variant, 1)
    assert "there-is-none" not in quarantined._admin.list_topics(timeout=20).topics, "a start creates no topic"


def test_rows_that_take_longer_than_a_transaction_may_be_open_are_written_once_the_first_is_there(
    output: Output, kafka: KafkaBroker
) -> None:
    driver = output.driver("two-phase", 1, timeout_ms=SHORT_MS)

    def computed() -> Iterator[pa.RecordBatch]:
        time.sleep(3 * SHORT_MS / 1000)  # the time that passes is the case
        yield from rows("slow")

    prepared = dict(driver.prepare_writer().write(Task(8), computed())[0])
    assert driver.commit(8, {0: prepared}) == set()
    wait_for_rows(output, {"slow": 20})


@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_a_task_that_is_slower_than_its_transaction_may_be_says_which_settings_help(
    output: Output, variant: str
) -> None:
    driver = output.driver(variant, 1, timeout_ms=SHORT_MS)
    with Coordinator({"bootstrap_servers": output.servers}) as coordinator:

        def states() -> set[str]:
            return {txn.state for txn in coordinator.listed(driver._names.prefix)}

        def slow() -> Iterator[pa.RecordBatch]:
            yield from rows("first")
            wait_for("the transaction to be begun", lambda: "Ongoing" in states())
            wait_for("its time-out", lambda: states() == {"CompleteAbort"})
            yield from rows("second")

        writer = driver.prepare_writer() if variant == "two-phase" else driver.idempotent_writer()
        with pytest.raises(DeliveryFailed, match=r"transaction_timeout_ms, here 1000: raise .*max_events_per_batch"):
            writer.write(Task(8), slow())
    assert output.visible() == {}


@pytest.mark.slow
def test_a_batch_that_takes_longer_than_the_time_out_is_finished_by_its_replays(output: Output) -> None:
    """Its first transactions are lost, and each replay writes only what is lost."""
    timeout_ms, kept, missing = 3 * SHORT_MS, {}, {0, 1, 2}
    for generation in range(1, 5):
        decided = [{**prepared, "batch": 8, "partition": p} for p, prepared in kept.items()]
        driver = output.driver("two-phase", generation, decided, timeout_ms)
        if kept:
            missing = driver.commit(8, kept)
        made = {}
        for p in sorted(missing):
            made[p] = dict(driver.prepare_writer().write(Task(8, p), rows(f"{p}"))[0])
            time.sleep(0.8 * timeout_ms / 1000)  # the time that passes is the case
        kept |= made
        lost = driver.commit(8, made)
        die()
        if not lost:
            break
    assert lost == set()
    wait_for_rows(output, {"0": 20, "1": 20, "2": 20})


def test_the_tasks_of_a_worker_share_a_transaction_in_every_batch(output: Output) -> None:
    driver = output.driver("two-phase", 1)
    for batch in range(4):
        prepared = {p: dict(driver.prepare_writer().write(Task(batch, p), rows(f"{batch} {p}"))[0]) for p in (0, 1)}
        assert prepared[0] == prepared[1]
        assert driver.commit(batch, prepared) == set()
    with Coordinator({"bootstrap_servers": output.servers}) as coordinator:
        assert len(coordinator.listed(driver._names.prefix)) == 1
    wait_for_rows(output, {f"{batch} {p}": 20 for batch in range(4) for p in (0, 1)})


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ids of each request to fence some."""
    asked: list[list[str]] = []
    real = Coordinator.fence

    def fence(self: Coordinator, names: Iterable[str], timeout_ms: int, limit_s: float) -> None:
        asked.append(list(names))
        real(self, asked[-1], timeout_ms, limit_s)

    monkeypatch.setattr(Coordinator, "fence", fence)
    return asked


def test_a_start_fences_what_was_used_and_leaves_what_an_earlier_one_has_fenced(
    output: Output, fenced: list[list[str]]
) -> None:
    left = [left_by(output, generation) for generation in (1, 2, 3)]
    used = [str(prepared["transactional_id"]) for prepared in left]
    assert fenced == [[used[0]], [used[1]]]
    # The third's decision was open when the fourth started; it is committed, and fenced by the fifth.
    fourth = output.driver("two-phase", 4, [{**left[2], "batch": 3, "partition": 0}])
    assert fenced[2:] == []
    assert fourth.commit(3, {0: left[2]}) == set()
    output.driver("two-phase", 5)
    assert fenced[2:] == [[used[2]]]
    wait_for_rows(output, {"of 3": 20})


def left_by(output: Output, generation: int) -> dict[str, Any]:
    """What a driver has prepared in a worker, and then both died."""
    prepared = write(output.driver("two-phase", generation).prepare_writer(), generation, f"of {generation}")
    die()
    return prepared


def test_a_start_without_a_note_of_what_is_fenced_fences_all_and_a_part_at_a_time(
    output: Output, fenced: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncebench.sinks.kafka.coordinator.FENCE_CHUNK", 2)
    names = Names(output.sink_id, 1, output.topic)
    with Coordinator({"bootstrap_servers": output.servers}) as coordinator:
        made = sorted(names.fresh_id() for _ in range(5))
        coordinator.fence(made, TIMEOUT_MS, 20)  # makes them; their state is that of a fenced one
    output.driver("two-phase", 2)
    assert fenced[1:] == [made[:2], made[2:4], made[4:]]
    output.driver("two-phase", 3)
    assert len(fenced) == 4


def test_what_a_task_is_told_of_committed_batches_does_not_grow(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncebench.sinks.kafka.sink.COMMITTED_KEPT", 2)
    driver = output.driver("two-phase", 1)
    for batch in range(4):
        prepared = write(driver.prepare_writer(), batch, "each")
        assert driver.commit(batch, {0: prepared}) == set()
        die()
    assert list(driver.prepare_writer().ended.values()) == [2, 3]


def test_a_sink_knows_how_long_its_broker_keeps_markers(output: Output) -> None:
    assert output.driver("two-phase", 1).forgets_after_s() == 7 * 24 * 3600, "Kafka's default"


def test_a_number_is_read_as_the_first_request_to_a_broker_that_is_new(kafka_own: KafkaBroker) -> None:
    topic = kafka_own.fresh_topic("out", 1)
    client = {"bootstrap.servers": kafka_own.bootstrap_servers}
    asking = "import sys; from oncebench.sinks.kafka.markers import Offsets; print(Offsets({}, {!r}).read('new'))"
    command = [sys.executable, "-c", asking.format(client, topic)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "None"), done.stderr
