"""A coordinator's answers that look like success and are errors."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from oncebench.sinks.kafka.coordinator import Coordinator


class Answering:
    """kafka-python's client: a topic's metadata contains an error and no partitions."""

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        return [{"name": topic, "error_code": self.error_code, "partitions": []} for topic in topics]

    def describe_producers(self, places: list[Any]) -> dict[Any, Any]:
        assert places == []
        return {}


@pytest.mark.parametrize(("code", "error"), [(29, TopicAuthorizationFailedError), (3, UnknownTopicOrPartitionError)])
def test_a_topic_that_cannot_be_described_raises_its_error(code: int, error: type[KafkaError]) -> None:
    coordinator = Coordinator.__new__(Coordinator)
    coordinator._admin = Answering(code)
    with pytest.raises(error, match="out"):
        coordinator.open_in("out")
