"""The Iceberg sink in a warehouse of a real S3-compatible server.

Between them is a proxy that drops answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import orjson
import pytest
from iceberg_s3 import SECRET, Lake, access, lake
from iceberg_tables import EXACTLY_ONCE, Tables, marker
from oncebench_iceberg import commit
from oncebench_iceberg.catalogs import rest
from oncebench_iceberg.catalogs.rest import RestPlace
from oncebench_iceberg.commit import Unanswered
from oncebench_iceberg.reader import SnapshotFollower
from rest_proxy import proxy_to

from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.sinks.reader import NotAnsweredError
from tests.s3_server import DroppingProxy

# The store is built on the first use, and the catalog starts slowly.
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with lake(tmp_path_factory.mktemp("lake")) as started:
        yield started


@pytest.fixture
def proxy(running: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[DroppingProxy]:
    """Between the sink and the store."""
    made = DroppingProxy(running.store)
    for name, value in access(made.endpoint).items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


@pytest.fixture
def tables(running: Lake, proxy: DroppingProxy) -> Tables:
    del proxy
    made = Tables(RestPlace(running.catalog.uri, f"shop.t{time.time_ns():x}"))
    made.make()
    return made


def followed(follower: SnapshotFollower) -> list[str]:
    return [orjson.loads(value or b"")["key"] for value in follower.fresh().value]


def test_rows_and_marker_come_in_one_commit_in_s3(tables: Tables) -> None:
    follower = SnapshotFollower(tables.place, "key")
    tables.started("one", 1).append(tables.files("a", "b"), marker(0))
    assert followed(follower) == ["a", "b"]
    tables.started("two", 2).append(tables.files("c"), marker(1, "two"))
    assert followed(follower) == ["c"]
    assert tables.load().location().startswith("s3://bench/warehouse/")
    assert tables.keys() == ["a", "b", "c"]


# More answers than Arrow's client repeats a request for: the sink stages the commit anew.
MANY = 6
LOST = {
    "an upload begins": ["POST uploads"],
    "its part": ["PUT partNumber="],
    "it ends": ["POST uploadId="],
    "many parts": ["PUT"] * MANY,
    "many ends": ["POST uploadId="] * MANY,
    "many reads": ["GET"] * MANY,
}


@pytest.mark.parametrize("drops", LOST.values(), ids=LOST)
def test_a_commit_with_lost_answers_of_the_store_comes_once(
    tables: Tables, proxy: DroppingProxy, drops: list[str]
) -> None:
    driver, follower, files = tables.started("one", 1), SnapshotFollower(tables.place, "key"), tables.files("a")
    assert followed(follower) == []
    proxy.drops = [*drops]
    driver.append(files, marker(0))
    assert (proxy.dropped, proxy.drops) == (len(drops), [])
    driver.append(tables.files("b"), marker(1))
    assert tables.keys() == ["a", "b"]
    assert followed(follower) + followed(follower) == ["a", "b"]


@pytest.mark.parametrize("drops", [*LOST.values()][:3], ids=[*LOST][:3])
def test_a_data_file_outlives_a_lost_answer(tables: Tables, proxy: DroppingProxy, drops: list[str]) -> None:
    driver = tables.started("one", 1)
    proxy.drops = [*drops]
    driver.append(tables.files("a"), marker(0))
    assert proxy.dropped == 1
    assert tables.keys() == ["a"]


def test_a_data_file_without_an_answer_is_an_orphan_and_no_row(tables: Tables, proxy: DroppingProxy) -> None:
    driver = tables.started("one", 1)
    proxy.drops = ["POST uploadId="] * MANY
    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        tables.files("a")
    proxy.drops = []
    driver.append(tables.files("a"), marker(0))
    follower = SnapshotFollower(tables.place, "key")
    assert followed(follower) == ["a"]
    assert [name.split()[0] for name in follower.leftovers()] == ["orphan"]


def test_a_start_with_wrong_keys_is_refused_at_once(
    tables: Tables, proxy: DroppingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in access(proxy.endpoint, "canary-of-a-secret").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RefusedStart, match=r"does not accept the keys.*S3__SECRET_ACCESS_KEY") as refused:
        tables.sink().start(EXACTLY_ONCE, 2, [])
    assert "canary" not in str(refused.value)


def test_keys_that_the_catalog_hands_out_are_used_for_each_batch(
    running: Lake, proxy: DroppingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = {
        name.rpartition("S3__")[2].lower().replace("_", "-"): value for name, value in access(proxy.endpoint).items()
    }
    for name in access(""):
        monkeypatch.delenv(name)
    with proxy_to(running.catalog.port) as catalog:
        catalog.hands_out = {f"s3.{name}": value for name, value in handed.items()}
        tables = Tables(RestPlace(catalog.uri, f"shop.t{time.time_ns():x}"))
        tables.make()
        driver = tables.started("one", 1)
        driver.append(tables.files("a"), marker(0))
        assert driver.access() == catalog.hands_out
        catalog.hands_out["s3.session-token"] = "new"
        assert driver.access()["s3.session-token"] == "new"
        assert SECRET not in f"{driver} {driver.catalog.place} {tables}"
        del catalog.hands_out["s3.session-token"]
        assert tables.keys() == ["a"]


def test_a_reader_waits_for_a_store_that_is_away(tables: Tables, proxy: DroppingProxy) -> None:
    driver, follower = tables.started("one", 1), SnapshotFollower(tables.place, "key")
    assert followed(follower) == []
    driver.append(tables.files("a"), marker(0))
    proxy.drops = ["GET"] * 100 + ["HEAD"]
    with pytest.raises(NotAnsweredError):
        follower.fresh()
    proxy.drops = []
    assert followed(follower) == ["a"]


def test_rows_and_markers_outlive_a_killed_store(
    running: Lake, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "READ_S", 2.0)  # the catalog itself waits for the store
    driver, files = tables.started("one", 1), tables.files("a")
    monkeypatch.setattr(commit, "LIMIT_S", 0.2)
    running.store.kill()
    try:
        with pytest.raises(Unanswered):
            driver.append(files, marker(0))
        with pytest.raises(DeliveryFailed, match="No row was read or written"):
            tables.sink().start(EXACTLY_ONCE, 2, [])
    finally:
        running.store.start()
    driver.append(files, marker(0))
    assert tables.keys() == ["a"]
