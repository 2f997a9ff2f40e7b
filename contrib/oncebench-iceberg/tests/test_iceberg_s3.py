"""The Iceberg sink in a warehouse of a real S3-compatible server, through a proxy that drops answers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import orjson
import pytest
from iceberg_s3 import Lake, access, lake
from iceberg_tables import Tables, marker
from oncebench_iceberg.catalogs.rest import RestPlace
from oncebench_iceberg.reader import SnapshotFollower

from tests.s3_server import DroppingProxy

pytestmark = [pytest.mark.integration, pytest.mark.slow]  # the store is built on the first use


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
