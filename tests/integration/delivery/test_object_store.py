"""The journal in a real S3-compatible server: exclusive, durable, and after lost answers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import get_context

import pytest

from oncebench.delivery.errors import StoreRefuses
from oncebench.delivery.stores import objects
from oncebench.delivery.stores.choose import Place, place_at, store_of
from oncebench.delivery.stores.objects import ENDPOINT, ObjectStore
from tests.s3_server import BUCKET, LOGIN, DroppingProxy, S3Server, s3_server
from tests.unit.delivery.test_stores import (  # noqa: F401  (run again here, in the real server)
    test_a_batch_is_decided_and_claimed_once,
    test_a_list_has_the_entries_here,
    test_a_missing_entry_is_named,
    test_a_name_is_taken_once,
    test_a_put_replaces_an_entry,
    test_a_start_remembers_what_the_last_one_noted,
    test_a_younger_driver_stops_the_older_one,
    test_an_entry_has_the_time_of_its_put,
    test_of_concurrent_puts_one_wins,
    test_old_entries_are_pruned,
    test_sparks_own_logs_are_read_there,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow]  # the server is built on the first use


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("objects")) as started:
        yield started


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Points the client to an endpoint, for this test."""

    def to(endpoint: str) -> None:
        for name, value in {**LOGIN, ENDPOINT: endpoint}.items():
            monkeypatch.setenv(name, value)
        objects._client.cache_clear()

    yield to
    objects._client.cache_clear()


@pytest.fixture
def place(server: S3Server, reach: object) -> Place:
    reach(server.endpoint)  # type: ignore[operator]
    return place_at(f"s3://{BUCKET}/{uuid.uuid4().hex}")


def _take(address: str, names: list[str], won: object) -> None:
    store = store_of(place_at(address))
    for name in names:
        if store.put_exclusively(name, uuid.uuid4().hex.encode()):
            won.put(name)  # type: ignore[attr-defined]


def test_of_two_processes_one_takes_a_name(place: Place) -> None:
    names = [f"race-{number}" for number in range(40)]
    context = get_context("spawn")
    won = context.Queue()
    processes = [context.Process(target=_take, args=(str(place), names, won)) for _ in range(2)]
    for process in processes:
        process.start()
    taken = sorted(won.get(timeout=120) for _ in names)
    for process in processes:
        process.join(120)
    assert taken == sorted(names)
    assert won.empty()


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_put_is_recognised_after_lost_answers(server: S3Server, place: Place, reach: object, lost: int) -> None:
    """The client tries by itself after the first one, and gets 412 for its own put."""
    with closing(DroppingProxy(server, ["PUT"] * lost)) as proxy:
        reach(proxy.endpoint)  # type: ignore[operator]
        assert store_of(place).put_exclusively("a", b"ours")
        assert proxy.dropped == lost
        proxy.drops = ["PUT"]
        assert not store_of(place).put_exclusively("a", b"another's")


def test_a_put_outlives_a_killed_server(server: S3Server, place: Place) -> None:
    store = store_of(place)
    assert store.put_exclusively("a", b"before")
    server.kill()
    back = threading.Timer(1.0, server.start)
    back.start()
    assert store.put_exclusively("b", b"meanwhile"), "it waits for the server"
    back.join()
    assert (store.read("a"), store.read("b")) == (b"before", b"meanwhile")


def test_a_wrong_login_or_bucket_is_named(place: Place, reach: object, server: S3Server, monkeypatch: object) -> None:
    missing = ObjectStore("missing", "a")
    for ask in (missing.prepare, missing.names):
        with pytest.raises(StoreRefuses, match="has no bucket 'missing'"):
            ask()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")  # type: ignore[attr-defined]
    objects._client.cache_clear()
    with pytest.raises(StoreRefuses, match="refuses a request"):
        store_of(place).names()
