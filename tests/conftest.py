"""Fixtures that every part of the tests shares: real brokers.

A broker is started once, or for one test alone.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from oncebench.downloads.java import find_java
from oncebench.lab.lab import QUICK_ABORTS, Lab, spark_of
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.servers.sink_servers import open_services
from oncebench.sinks.registry import suite_sinks
from tests.pipelines import Fixture

# How long one example takes is the machine's affair; pytest-timeout ends what hangs.
settings.register_profile("patient", deadline=None)
# For `make mutation`: one failing example kills a mutant, a smaller one tells no more; each run draws the same ones.
settings.register_profile(
    "mutation", deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for the whole test run.

    Make fresh topics on it; don't break it (see `kafka_own`).
    """
    with start_kafka(tmp_path_factory.mktemp("kafka"), settings=QUICK_ABORTS) as broker:
        yield broker


@pytest.fixture
def kafka_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of the test's own, which it may kill, pause and restart."""
    with start_kafka(tmp_path_factory.mktemp("kafka-own")) as broker:
        yield broker


@pytest.fixture(scope="session")
def lab(kafka: KafkaBroker) -> Lab:
    """Java, jars and the shared broker, for tests that start the pipeline."""
    java = find_java()
    return Lab(kafka, java, **spark_of(java))


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever the sinks that can be run here need beside Kafka, started once."""
    names = {name for sink in suite_sinks().values() if not sink.kind.missing for name in sink.traits.services}
    with open_services(names, tmp_path_factory.mktemp("services")):
        yield


@pytest.fixture
def fixture(lab: Lab, tmp_path: Path) -> Fixture:
    """Fresh topics for a pipeline of the test's own."""
    return Fixture(lab, tmp_path)
