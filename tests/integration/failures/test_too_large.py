"""A row that is too large for its topic ends the job once.

The message names record, size and command.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncebench.lab.lab import Lab
from tests.integration.pipeline.own_job import WAIT_S, Own, ended, order
from tests.kafka_topics import configure
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]
LETTERS = 600_000  # once in the row's key and once in its value: the row is larger than 1 MB, the record is not
LIMIT = 2_000_000


def raise_limit(own: Own, name: str, limit: int) -> None:
    configure(own.lab.kafka.admin(), own.topics[name], {"max.message.bytes": limit})


def send_large(own: Own) -> str:
    long = "x" * LETTERS
    producer = Producer({"bootstrap.servers": own.servers})
    value = json.dumps({**order(7), "order_id": long}).encode()
    producer.produce(own.topics["orders"], key=b"7", value=value, partition=2)
    assert producer.flush(30) == 0
    return long


@pytest.mark.parametrize(
    ("guarantee", "variant"),
    [("exactly-once", "two-phase"), ("at-least-once", "native"), ("exactly-once", "idempotent"),
     ("at-least-once", "acknowledged")],
)  # fmt: skip
@pytest.mark.slow
def test_a_row_that_is_too_large_ends_the_job_and_passes_once_the_topics_limit_is_raised(
    lab: Lab, tmp_path: Path, guarantee: str, variant: str
) -> None:
    own = Own(lab, tmp_path, guarantee=guarantee, variant=variant)
    if variant == "native":
        own.topics["checked"] = lab.kafka.fresh_topic("small", 2, {"max.message.bytes": "1000000"})
        job = tmp_path / "job.json"
        job.write_text(json.dumps(json.loads(job.read_text()) | {"output": {"output": own.topics["checked"]}}))
    long = send_large(own)
    code, said = ended(own)
    last = said.splitlines()[-1]
    assert code == 2, last
    assert "kafka-configs.sh --bootstrap-server HOST:PORT --alter" in last
    assert "max.message.bytes" in last
    if variant != "native":  # the row is Spark's own affair there
        assert "the row with key 'xxxxx" in last
        size = len(json.dumps({**order(7), "order_id": long})) + len(b"7")
        assert f"partition 2 offset 0 ({size:,} bytes)" in last
        assert f"--entity-name {own.topics['checked']} --add-config max.message.bytes=121" in last
    raise_limit(own, "checked", LIMIT)
    with own.start(1) as job:
        wait_for("the large order", lambda: own.visible() == {long: 1}, [job])
        job.stop_gently(WAIT_S)
        assert job.returncode == 0


@pytest.mark.slow
def test_small_rows_pass_a_topic_whose_limit_is_smaller_than_the_clients_batches(lab: Lab, tmp_path: Path) -> None:
    own = Own(lab, tmp_path)
    raise_limit(own, "checked", 20_000)
    own.send(range(4000))
    with own.start(0) as job:
        wait_for("all orders", lambda: len(own.visible()) == 4000, [job])
        job.stop_gently(WAIT_S)
        assert job.returncode == 0
