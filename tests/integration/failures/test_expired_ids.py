"""The brokers forget an id that was idle for too long.

A living worker takes a new id, without a death.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.kafka.rows import limits, writers
from tests.integration.sinks.kafka_output import Output, Task, rows
from tests.waiting import wait_for

pytestmark = pytest.mark.integration
SHORT = {
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with start_kafka(tmp_path_factory.mktemp("kafka"), settings=SHORT) as broker:
        yield broker


@pytest.mark.parametrize(
    ("variant", "empty", "known"),
    [("two-phase", False, True), ("idempotent", False, True), ("two-phase", True, True), ("idempotent", True, True),
     ("two-phase", False, False)],
    ids=["two-phase, idle", "idempotent, idle", "two-phase, batches without rows", "idempotent, batches without rows",
         "two-phase, idle, the client may not read the expiry"],
)  # fmt: skip
def test_an_id_that_expires_under_a_living_worker_is_renewed(
    forgetful: KafkaBroker, monkeypatch: pytest.MonkeyPatch, variant: str, empty: bool, known: bool
) -> None:
    writers._producers.clear()
    output = Output(forgetful)
    driver = output.driver(variant, 1)
    if not known:
        monkeypatch.setattr(driver, "_limits", limits.UNKNOWN)

    def batch(number: int, of: str) -> None:
        writer = driver.prepare_writer() if variant == "two-phase" else driver.idempotent_writer()
        prepared = dict(writer.write(Task(number), rows(of) if of else iter(()))[0])
        if prepared:
            assert driver.commit(number, {0: prepared}) == set()

    batch(1, "early")
    numbers = count(2)
    with Coordinator({"bootstrap_servers": output.servers}) as coordinator:

        def ids() -> set[str]:
            return {txn.transactional_id for txn in coordinator.listed(driver._names.prefix)}

        def forgotten() -> bool:
            if empty:  # batches that only reject records
                batch(next(numbers), "")
            return not first & ids()

        first = ids()
        assert first
        wait_for("the brokers to forget the id", forgotten)
    batch(next(numbers), "late")
    wait_for("all rows", lambda: output.visible() == {"early": 20, "late": 20})
