"""What an admin client does while a broker is away."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from oncebench.kafka_repair.admin import admin_client
from tests.unit.kafka_repair.mock_cluster import BROKERS, TOPIC, mock_cluster

ROOT = Path(__file__).parents[3]
# They ask for the topics only: any broker answers, and librdkafka waits between two connections.
ASKS_ANY = {ROOT / "oncebench/kafka_access/connection.py", ROOT / "oncebench/servers/kafka/external.py"}
AWAY = 3
AWAY_S = 3.0
# With the backoff: after 100, 200, 400 and 800 ms, then each second, and 25 % earlier at most. Without: some hundreds
# each second on a busy machine.
MOST_CONNECTIONS = 12


def test_a_request_for_a_broker_that_is_away_reconnects_with_a_pause() -> None:
    seen: list[dict[str, Any]] = []

    def note(statistics: str) -> None:
        seen.extend(each for each in json.loads(statistics)["brokers"].values() if each["nodeid"] == AWAY)

    with mock_cluster() as cluster:
        admin = admin_client({**cluster.client, "statistics.interval.ms": 200, "stats_cb": note})
        asked = {TopicPartition(TOPIC, partition): OffsetSpec.latest() for partition in range(BROKERS)}
        for answer in admin.list_offsets(asked, request_timeout=30.0).values():
            answer.result()
        cluster.kill(AWAY)
        while not seen or seen[-1]["state"] == "UP":  # a request to a connected broker fails at once
            admin.poll(0.1)
        waiting = admin.list_offsets(asked, request_timeout=30.0)
        until = time.monotonic() + AWAY_S
        while time.monotonic() < until:
            admin.poll(0.1)
        assert not waiting[TopicPartition(TOPIC, AWAY - 1)].done()  # else nothing was tested
        assert 1 < seen[-1]["connects"] < MOST_CONNECTIONS
        del admin  # before the brokers


def test_every_admin_client_of_the_product_is_made_here() -> None:
    own = ROOT / "oncebench/kafka_repair/admin.py"
    files = [file for room in ("oncebench", "pipeline", "loadgen", "contrib") for file in (ROOT / room).rglob("*.py")]
    makers = {file for file in files if re.search(r"\bAdminClient\(", file.read_text("utf-8"))}
    assert makers == {own, *ASKS_ANY}
