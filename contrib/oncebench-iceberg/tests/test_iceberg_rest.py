"""The Iceberg sink on a real REST catalog, through a proxy that loses answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import orjson
import pytest
from iceberg_tables import EXACTLY_ONCE, Tables, marker
from oncebench_iceberg import commit, reader
from oncebench_iceberg.catalogs.rest import RestPlace
from oncebench_iceberg.commit import Unanswered
from oncebench_iceberg.job import IcebergRestTable
from oncebench_iceberg.reader import SnapshotFollower
from oncebench_iceberg.server import RestCatalogServer, check_reachable, start_rest_catalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError
from rest_proxy import RestProxy, arrives_with, lost, never_arrives, proxy_to, refuses_with, sent_twice

from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, RefusedStart
from oncebench.errors import MissingEnvironment
from oncebench.sinks.reader import NotAnsweredError

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    with start_rest_catalog(tmp_path_factory.mktemp("rest")) as started:
        yield started


@pytest.fixture
def proxy(server: RestCatalogServer) -> Iterator[RestProxy]:
    with proxy_to(server.port) as started:
        yield started


@pytest.fixture
def tables(proxy: RestProxy) -> Tables:
    """An empty table of its own, through the proxy."""
    made = Tables(RestPlace(proxy.uri, f"shop.t{time.time_ns():x}"))
    made.make()
    return made


def test_a_start_makes_namespace_and_table(proxy: RestProxy) -> None:
    tables = Tables(RestPlace(proxy.uri, f"new{time.time_ns():x}.orders"))
    sink = tables.sink()
    assert sink.identity() == {}
    sink.start(EXACTLY_ONCE, 1, [])
    assert sink.identity() == {"table": str(tables.load().metadata.table_uuid)}
    sink.close()


DISTURBED = {
    "its answer lost": lost,
    "never arrived": never_arrives,
    **{f"arrived, answer {code}": arrives_with(code) for code in (500, 502, 503, 504)},
    **{f"not arrived, answer {code}": refuses_with(code) for code in (429, 500, 502, 503, 504)},
    "sent twice by a gateway": sent_twice,
}


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("disturbed", DISTURBED.values(), ids=DISTURBED)
def test_a_disturbed_commit_comes_once(
    tables: Tables, proxy: RestProxy, disturbed: Callable[..., Any], marked: bool
) -> None:
    driver, files = tables.started("one", 1), tables.files("a")
    proxy.commits, proxy.seen = [disturbed], []
    driver.append(files, marker(0) if marked else None)
    assert proxy.commits == []
    sent = [each.split()[0] for each in proxy.seen]
    assert sent[:3] == ["GET", "POST", "GET"], "the table is looked up before the next try"
    driver.append(tables.files("b"), marker(1) if marked else None)
    assert tables.keys() == ["a", "b"]


@pytest.mark.parametrize("disturbed", [lost, never_arrives, sent_twice])
def test_a_start_and_a_claim_survive_a_disturbed_commit(
    tables: Tables, proxy: RestProxy, disturbed: Callable[..., Any]
) -> None:
    proxy.commits = [disturbed]
    driver = tables.started("one", 1)
    proxy.commits = [disturbed]
    driver.claim(4)
    driver.append(tables.files("a"), None)
    assert tables.keys() == ["a"]
    assert tables.properties()["oncebench.claim.job"] == '{"batch": 4, "driver": "one"}'


def test_a_commit_that_arrives_late_comes_once(tables: Tables, proxy: RestProxy) -> None:
    driver, files = tables.started("one", 1), tables.files("a")
    held: list[Callable[[], Any]] = []

    def holds(forward: Callable[[], Any]) -> None:
        held.append(forward)

    def overtaken(forward: Callable[[], Any]) -> Any:
        held.pop()()  # the first try arrives, when the second one is on its way
        return forward()

    proxy.commits = [holds, overtaken]
    driver.append(files, marker(0))
    driver.append(tables.files("b"), marker(1))
    assert tables.keys() == ["a", "b"]


def test_a_held_commit_of_a_stopped_driver_is_refused(tables: Tables, proxy: RestProxy) -> None:
    stopped, files = tables.started("one", 1), tables.files("a")
    answers: list[int] = []

    def holds(forward: Callable[[], Any]) -> None:
        tables.started("two", 2).append(tables.files("a"), marker(0, "two"))
        answers.append(forward()[0])

    proxy.commits = [holds]
    with pytest.raises(AnotherDriver):
        stopped.append(files, marker(0))
    assert answers == [409]
    assert tables.keys() == ["a"]


def test_a_catalog_that_is_away_ends_the_commit(
    tables: Tables, proxy: RestProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, files = tables.started("one", 1), tables.files("a")
    monkeypatch.setattr(commit, "LIMIT_S", 0.2)
    proxy.commits = [never_arrives] * 1000
    with pytest.raises(Unanswered, match="Connection aborted"):
        driver.append(files, marker(0))
    proxy.commits = []
    driver.append(files, marker(0))
    assert tables.keys() == ["a"]


def test_a_refusal_of_the_catalog_is_not_repeated(tables: Tables, proxy: RestProxy) -> None:
    driver, files = tables.started("one", 1), tables.files("a")
    proxy.commits = [refuses_with(403)]
    with pytest.raises(ForbiddenError):
        driver.append(files, marker(0))


def test_rows_and_markers_outlive_a_killed_catalog(server: RestCatalogServer, tables: Tables) -> None:
    driver, files = tables.started("one", 1), tables.files("a")
    driver.append(files, marker(0))
    follower = SnapshotFollower(tables.place, "key")
    assert len(follower.fresh()) == 1
    server.kill()
    with pytest.raises(NotAnsweredError):
        follower.fresh()
    server.start()
    driver.append(tables.files("b"), marker(1))
    assert tables.keys() == ["a", "b"]
    assert [orjson.loads(value or b"")["key"] for value in follower.fresh().value] == ["b"]
    follower.close()


def test_a_token_is_sent_and_shown_nowhere(
    tables: Tables, proxy: RestProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__TOKEN", "secret-token")
    proxy.logins = []
    driver = tables.started("one", 1)
    driver.append(tables.files("a"), marker(0))
    assert set(proxy.logins) == {"Bearer secret-token"}
    assert "secret-token" not in f"{driver} {driver.catalog.place} {driver.access()} {caplog.text}"


def test_a_start_without_a_catalog_may_pass_later(proxy: RestProxy) -> None:
    place = RestPlace("http://127.0.0.1:1", "shop.orders")
    with pytest.raises(DeliveryFailed, match=r"No row was read .* did not answer\)\. Check that it runs") as failed:
        Tables(place).sink().identity()
    assert failed.value.restart_helps
    with pytest.raises(MissingEnvironment, match="Check that it runs"):
        check_reachable(place.text)
    check_reachable(f"{proxy.uri}/shop.orders")


def test_a_reader_of_a_catalog_that_stays_away_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = SnapshotFollower(RestPlace("http://127.0.0.1:1", "shop.orders"), "key")
    with pytest.raises(NotAnsweredError):
        follower.fresh()
    monkeypatch.setattr(reader, "AWAY_S", 0.0)
    with pytest.raises(reader.ReadError, match="did not answer"):
        follower.fresh()


def test_a_dropped_table_is_missed(tables: Tables) -> None:
    driver, files = tables.started("one", 1), tables.files("a")
    driver.catalog._catalog().drop_table(tables.place.table)
    with pytest.raises(NoSuchTableError):
        driver.append(files, marker(0))
    with closing(tables.catalog()) as catalog:
        assert catalog.find() is None


@pytest.mark.parametrize(
    "text",
    [
        "https://catalog:8181/shop",
        "https://catalog:8181/shop.orders?token=secret",
        "https://catalog:8181/shop.orders?warehouse=a&warehouse=b",
        "https://user:secret@catalog:8181/shop.orders",
    ],
)
def test_a_text_that_is_no_table_of_a_catalog_is_refused(text: str) -> None:
    with pytest.raises(RefusedStart) as refused:
        RestPlace.of(text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("warehouse", ["", "prod & test"])
def test_a_job_names_a_catalog(warehouse: str) -> None:
    sink = IcebergRestTable("https://catalog:8181/api", "shop.orders", warehouse=warehouse, sink_id="job")
    assert RestPlace.of(sink.output) == RestPlace("https://catalog:8181/api", "shop.orders", warehouse)


@pytest.mark.parametrize("uri", ["", "/api", "catalog/api", "user:secret@catalog:8181/api"])
def test_a_job_whose_address_is_none_of_a_rest_catalog_is_refused(uri: str) -> None:
    with pytest.raises(RefusedStart, match="does not begin with http:// or https://") as refused:
        _ = IcebergRestTable(uri, "shop.orders", sink_id="job").output
    assert "secret" not in str(refused.value)
