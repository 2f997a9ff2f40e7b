"""The Kafka sink behind a proxy: an EndTxn that comes late ends no transaction but its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oncebench.services.framing import END_TXN, KafkaFraming, end_txn_error, is_kafka
from oncebench.services.kafka import start_kafka
from oncebench.services.proxy import Catch, Proxy
from pipeline.sinks import kafka_tasks
from pipeline.sinks.kafka import KafkaSink
from tests.integration.test_kafka_sink import TIMEOUT_MS, Output, Task, rows, support, wait_for, wait_for_rows

pytestmark = pytest.mark.integration
ADD_OFFSETS_TO_TXN = 25
# Long enough for the client to ask again on another connection and to begin its next transaction.
HELD_S = 3.0
# librdkafka keeps quiet about the third loss of a connection for the same reason within half a minute.
LOSSES = 4
# A key that belongs to another of two partitions than "first": the broker begins a transaction for it without a word.
ELSEWHERE = "rest"


class Linked(Output):
    """Drivers and workers reach the broker through a proxy, the reader does not."""

    proxy: Proxy

    def driver(self, variant: str, generation: int, keep: Any = None) -> KafkaSink:
        client = {"bootstrap.servers": f"127.0.0.1:{self.proxy.port}"}
        sink = KafkaSink(self.topic, self.sink_id, 1, client, TIMEOUT_MS, "none")
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
        kafka_tasks._transactional.clear()


class Pausing(Task):
    """A task that does something when all its rows have been handed over."""

    def __init__(self, batch: int, then: Callable[[], None]) -> None:
        super().__init__(batch)
        self._then = then

    def passing(self, point: str) -> None:
        if point == "before-prepare":
            self._then()


def nothing() -> Iterator[pa.RecordBatch]:
    return iter(())


def test_an_abort_of_an_empty_partition_that_comes_late_does_not_end_the_workers_next_transaction(
    linked: Linked,
) -> None:
    driver = linked.driver("two-phase", 1)
    late = Catch(lambda request: is_kafka(END_TXN, request), held_s=HELD_S)
    linked.proxy.catch(late)
    driver.prepare().write(Task(7), nothing())
    assert late.request is not None

    def in_two() -> Iterator[pa.RecordBatch]:
        yield from rows("first")
        wait_for("the late abort", lambda: late.over)
        yield from rows(ELSEWHERE)

    prepared = dict(driver.prepare().write(Task(8), in_two())[0])
    assert driver.commit(8, {0: prepared}) == set()
    wait_for_rows(linked, {"first": 20, ELSEWHERE: 20})
    assert late.answer is not None


def test_a_commit_that_comes_late_does_not_end_the_workers_next_transaction_on_a_link_that_keeps_breaking(
    linked: Linked,
) -> None:
    driver = linked.driver("idempotent", 2)
    before = linked.visible()
    late = Catch(lambda request: is_kafka(END_TXN, request), held_s=HELD_S)
    losses = [Catch(lambda request: is_kafka(ADD_OFFSETS_TO_TXN, request)) for _ in range(LOSSES)]

    def breaking() -> None:
        for catch in losses:
            linked.proxy.catch(catch)
            wait_for("the connection to be lost", lambda catch=catch: catch.over)
        linked.proxy.catch(late)

    breaker = threading.Thread(target=breaking)
    driver.marked().write(Pausing(9, breaker.start), rows("nine"))
    breaker.join()
    assert all(catch.request is not None for catch in (*losses, late))

    def late_one_has_come() -> None:
        wait_for("the late commit", lambda: late.over)
        wait_for("only what was committed to be visible", lambda: linked.visible() == {**before, "nine": 20})

    driver.marked().write(Pausing(10, late_one_has_come), rows("ten"))
    assert late.answer is not None and late.request is not None
    wait_for_rows(linked, {**before, "nine": 20, "ten": 20})
    assert end_txn_error(late.answer, late.request) == 0, "its own transaction had ended so: nothing was left to do"
