"""Fixtures that every part of the tests shares: real brokers, started once or for one test alone."""

from collections.abc import Iterator

import pytest

from oncebench.services.kafka import KafkaBroker, start_kafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for the whole test run. Make fresh topics on it; don't break it (see `kafka_own`)."""
    with start_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def kafka_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of the test's own, which it may kill, pause and restart."""
    with start_kafka(tmp_path_factory.mktemp("kafka-own")) as broker:
        yield broker
