"""The secured broker, started once for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.kafka_access.secured import Secured, secured_kafka


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as found:
        yield found
