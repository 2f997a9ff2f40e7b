"""Real PostgreSQL servers for tests of its sink, and the published page in a real browser.

One server is for the tests of a file. To another one, a test may do anything.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebench.delivery import quarantine
from oncebench.servers.postgres import PostgresServer, start_postgres
from oncebench.sinks.kafka.rows import append, writers
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.site.write import publish
from tests import sample_reports
from tests.browser import Page, browser
from tests.results_page import reports


@pytest.fixture(scope="module", autouse=True)
def clients_end_with_their_file() -> Iterator[None]:
    """Ends the clients of Kafka that workers keep for later batches.

    A client that outlives its broker only tries to connect. A transactional one also keeps all log lines about it, in a
    list that takes longer and longer to add to: the clients of three files took 40 % of a core until the last test
    ended.
    """
    yield
    for kept in (writers._producers, writers._group_metadata, append._appenders, quarantine._writers):
        kept.clear()
    quarantine._originals.clear()
    gc.collect()  # a transactional client is its own logger


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


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = sample_reports.write(tmp_path_factory.mktemp("results"), reports())
    return publish(folder).files[0].as_uri()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(shared: Page, address: str) -> Page:
    """The page as it opens, without a selection."""
    shared.open(address)
    return shared
