"""Real PostgreSQL servers for tests of its sink: one for a file's tests, and one that a test may do anything to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebench.services.postgres import PostgresServer, start_postgres
from pipeline.sinks.postgres_server import VARIABLE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with start_postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """A server that the test may kill, or change the settings of."""
    with start_postgres(tmp_path) as server:
        monkeypatch.setenv(VARIABLE, server.dsn)
        yield server
