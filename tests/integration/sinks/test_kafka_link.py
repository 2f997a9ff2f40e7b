"""The Kafka sink behind a proxy: a late EndTxn ends only its own transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oncebench.servers.kafka.broker import start_kafka
from oncebench.servers.proxy.framing import END_TXN, PRODUCE, KafkaFraming, end_txn_error, is_kafka, produce_error
from oncebench.servers.proxy.tcp import Catch, Proxy
from oncebench.sinks.kafka.rows import writers
from oncebench.sinks.kafka.sink import KafkaSink
from tests.integration.sinks.kafka_output import TIMEOUT_MS, Output, Task, rows, support, wait_for_rows
from tests.waiting import wait_for

pytestmark = pytest.mark.integration
# Long enough for the client to retry on another connection and to begin its next transaction.
HELD_S = 3.0
# A client continues within two seconds after the link is mended; a busy machine needs longer.
RECOVERS_S = 40.0
# Each driver has a newer generation than the one before.
GENERATIONS = {"two-phase": 1, "idempotent": 2}
# A key of the other partition than "first": the broker begins a transaction there without a request.
ELSEWHERE = "rest"


class Linked(Output):
    """Drivers and workers connect through a proxy; the reader connects directly."""

    proxy: Proxy

    def driver(self, variant: str, generation: int, keep: Any = None, timeout_ms: int = TIMEOUT_MS) -> KafkaSink:
        client = {"bootstrap.servers": f"127.0.0.1:{self.proxy.port}"}
        sink = KafkaSink(self.topic, self.sink_id, 1, client, timeout_ms, "")
        sink.start(support(variant), generation, keep or [])
        return sink


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    folder: Path = tmp_path_factory.mktemp("linked")
    with (
        closing(Proxy(KafkaFraming())) as proxy,
        start_kafka(folder, extra_listeners={"LINK": proxy.port}) as broker,
        proxy.open(broker.ports["LINK"]),
    ):
        Linked.proxy = proxy
        yield Linked(broker, partitions=2)
        writers._producers.clear()


class Pausing(Task):
    """A task that calls a function after its last row."""

    def __init__(self, batch: int, then: Callable[[], None]) -> None:
        super().__init__(batch)
        self._then = then

    def reach(self, point: str) -> None:
        if point == "before-prepare":
            self._then()


def nothing() -> Iterator[pa.RecordBatch]:
    return iter(())


@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_a_worker_continues_after_its_link_is_mended(linked: Linked, variant: str) -> None:
    driver = linked.driver(variant, GENERATIONS[variant])
    before = linked.visible()

    def deliver(batch: int, task: Task, of: str) -> None:
        if variant == "idempotent":
            driver.idempotent_writer().write(task, rows(of))
        else:
            driver.commit(batch, {0: dict(driver.prepare_writer().write(task, rows(of))[0])})

    def cut_and_mended() -> None:
        linked.proxy.cut()
        linked.proxy.mend()

    def all_three() -> None:
        deliver(1, Task(1), f"{variant} one")
        cut_and_mended()
        deliver(2, Pausing(2, cut_and_mended), f"{variant} two")
        deliver(3, Task(3), f"{variant} three")

    working = threading.Thread(target=all_three, daemon=True)  # librdkafka may hang for minutes, beyond its own limit
    working.start()
    working.join(RECOVERS_S)
    assert not working.is_alive()
    wait_for_rows(linked, {**before, **{f"{variant} {number}": 20 for number in ("one", "two", "three")}})


def test_a_late_repeated_commit_does_not_end_the_next_transaction(linked: Linked) -> None:
    driver = linked.driver("two-phase", 3)
    before = linked.visible()
    assert driver.commit(7, {0: dict(driver.prepare_writer().write(Task(7), rows("seven"))[0])}) == set()
    late = Catch(lambda request: is_kafka(END_TXN, request), held_s=HELD_S)
    linked.proxy.catch(late)

    def in_two() -> Iterator[pa.RecordBatch]:
        yield from rows("first")
        wait_for("the late commit", lambda: late.over)
        yield from rows(ELSEWHERE)

    prepared = dict(driver.prepare_writer().write(Task(8), in_two())[0])
    assert late.answer is not None
    wait_for_rows(linked, {**before, "seven": 20})
    assert driver.commit(8, {0: prepared}) == set()
    wait_for_rows(linked, {**before, "seven": 20, "first": 20, ELSEWHERE: 20})


@pytest.mark.parametrize(("variant", "generation"), [("two-phase", 4), ("idempotent", 5)])
def test_an_empty_partition_has_no_transaction_to_end(linked: Linked, variant: str, generation: int) -> None:
    driver = linked.driver(variant, generation)
    caught = Catch(lambda request: is_kafka(END_TXN, request))
    linked.proxy.catch(caught)
    writer = driver.prepare_writer() if variant == "two-phase" else driver.idempotent_writer()
    writer.write(Task(9), nothing())
    caught.forgotten = True
    assert caught.request is None


@pytest.mark.parametrize(("api_key", "error"), [(PRODUCE, produce_error), (END_TXN, end_txn_error)])
def test_a_lost_answer_is_parsed_in_the_clients_api_version(
    linked: Linked, api_key: int, error: Callable[[bytes, bytes], int]
) -> None:
    driver = linked.driver("idempotent", 6 + api_key)
    caught = Catch(lambda request: is_kafka(api_key, request))
    linked.proxy.catch(caught)
    driver.idempotent_writer().write(Task(10), rows(f"answered {api_key}"))  # retries on another connection
    assert caught.answer is not None
    assert caught.request is not None
    assert error(caught.answer, caught.request) == 0
