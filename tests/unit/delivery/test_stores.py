"""The places of a journal: a folder and an object store keep the same promises."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.errors import AnotherDriver, NoStore, QueryDied, RefusedStart, StoreRefuses
from oncebench.delivery.failures import deaths
from oncebench.delivery.journal import KEEP_BATCHES, Identity, checkpoint_id, look_into, newest_start, open_journal
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.marks import Marks
from oncebench.delivery.starts.places import OUTPUT, Places
from oncebench.delivery.stores import choose, objects
from oncebench.delivery.stores.choose import Place, place_at, store_of
from oncebench.delivery.stores.entries import put_exclusively, read_entry
from oncebench.delivery.stores.objects import ObjectStore
from oncebench.jobs.checkpoint import committed_position, has_finished, last_batch, open_batch

exceptions = pytest.importorskip("obstore.exceptions", reason="needs the extra s3")
IDENTITY = Identity("s", "files-jsonl", "exactly-once", "two-phase", 2)


class Server:
    """The client's own store in memory; `faults` happen to the next calls of `put`, one each."""

    def __init__(self) -> None:
        from obstore.store import MemoryStore

        self.store = MemoryStore()
        self.faults: list[Callable[[Callable[[], Any]], Any]] = []
        self.requests: list[str] = []

    def put(self, *args: Any, **named: Any) -> Any:
        self.requests.append("put")
        put = lambda: self.store.put(*args, **named)  # noqa: E731
        return self.faults.pop(0)(put) if self.faults else put()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            self.requests.append(name)
            return getattr(self.store, name)(*args, **named)

        return call


def answer_lost(put: Callable[[], Any]) -> None:
    put()
    raise exceptions.GenericError("connection closed before message completed")


def request_lost(_put: Callable[[], Any]) -> None:
    raise exceptions.GenericError("connection refused")


def tried_twice_by_the_client(put: Callable[[], Any]) -> None:
    put()
    put()  # the answer of the first one was lost


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(objects, "_client", lambda _bucket, _login: found)
    monkeypatch.setattr(objects, "_PAUSE_S", 0.0)
    return found


@pytest.fixture
def store(server: Server) -> ObjectStore:
    return ObjectStore("bucket", "orders/journal")


@pytest.fixture(params=["folder", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path, server: Server) -> Iterator[Place]:
    yield tmp_path if request.param == "folder" else ObjectStore("bucket", "orders")


def other() -> bytes:
    return uuid.uuid4().hex.encode()


# ------------------------------------------------------------------------------------------ what both promise


def test_a_name_is_taken_once(place: Place) -> None:
    store = store_of(place)
    store.prepare()
    assert store.put_exclusively("a", b"first")
    assert not store.put_exclusively("a", b"second")
    assert store.read("a") == b"first"


def test_of_concurrent_puts_one_wins(place: Place) -> None:
    store = store_of(place)
    store.prepare()

    def put(number: int) -> int | None:
        return number if store.put_exclusively("a", b"%d" % number) else None

    with ThreadPoolExecutor(8) as pool:
        won = [number for number in pool.map(put, range(32)) if number is not None]
    assert len(won) == 1
    assert store.read("a") == b"%d" % won[0]


@pytest.mark.parametrize("content", [b"first", b"second"])
def test_a_link_whose_answer_was_lost_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """As on NFS: the client sends the request again.

    The server refuses the name that the first request has made.
    """
    store = store_of(tmp_path)
    link, was_there = os.link, content == b"second"
    if was_there:
        store.put("a", b"first")

    def sent_again(source: Path, target: Path) -> None:
        with suppress(FileExistsError):
            link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", sent_again)
    assert store.put_exclusively("a", content) is not was_there
    assert store.read("a") == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_put_replaces_an_entry(place: Place, durable: bool) -> None:
    store = store_of(place)
    store.prepare()
    for content in (b"first", b"second"):
        store.put("a", content, durable=durable)
    assert store.read("a") == b"second"


def test_a_list_has_the_entries_here(place: Place) -> None:
    store = store_of(place)
    store.prepare()
    assert list(store.names()) == []
    for name in ("a", "b", "c"):
        store.put(name, b"")
    store.below("d").put("e", b"", durable=False)
    assert set(store.names()) - {"d"} == {"a", "b", "c"}
    assert set(store.names("b")) - {"d"} == {"c"}
    assert list(store.below("d").names()) == ["e"]
    assert list(store.below("none").names()) == []


def test_a_missing_entry_is_named(place: Place) -> None:
    store = store_of(place)
    store.delete("a")
    for look in (store.read, store.written_at):
        with pytest.raises(FileNotFoundError) as missing:
            look("a")
        assert str(missing.value.filename) == f"{place}/a"


def test_an_entry_has_the_time_of_its_put(place: Place) -> None:
    store = store_of(place)
    store.prepare()
    store.put("a", b"")
    assert abs(store.written_at("a") - time.time()) < 60
    store.delete("a")
    assert list(store.names()) == []


def test_a_younger_driver_stops_the_older_one(place: Place) -> None:
    old, new = (open_journal(place, IDENTITY) for _ in range(2))
    new.check_still_ours()
    for step in (lambda: old.decide(0, 0, {}), lambda: old.claim(0), lambda: old.decisions(0), old.check_still_ours):
        with pytest.raises(AnotherDriver):
            step()
    assert newest_start(new.folder) is not None


def test_a_batch_is_decided_and_claimed_once(place: Place) -> None:
    journal = open_journal(place, IDENTITY)
    journal.decide(3, 0, {"partitions": []})
    with pytest.raises(AnotherDriver, match="was decided by another driver"):
        journal.decide(3, 0, {"partitions": []})
    assert journal.claim(3)
    with pytest.raises(AnotherDriver, match="was written by another driver"):
        journal.claim(3)
    later = open_journal(place, IDENTITY)
    assert not later.claim(3), "an earlier driver has claimed it"
    assert later.decisions(3) == [{"batch": 3, "generation": 1, "partitions": []}]
    assert (later.newest_decision(), later.is_claimed(3), later.is_claimed(4)) == (3, True, False)


def test_old_entries_are_pruned(place: Place) -> None:
    journal = open_journal(place, IDENTITY)
    for batch in (0, 1):
        journal.decide(batch, 0, {})
    journal.prune(1)
    for batch in (2, 3):
        journal.decide(batch, 0, {})
    journal.prune(KEEP_BATCHES + 3)
    assert [len(journal.decisions(batch)) for batch in (0, 1, 2, 3)] == [0, 0, 0, 1]


def test_a_start_remembers_what_the_last_one_noted(place: Place) -> None:
    folder = open_journal(place, IDENTITY).folder
    Places(folder).record(OUTPUT, {"table": "1"})
    Gaps(folder, "input/0:1..2").accept("input/0:1..2", "gone.", batch=4)
    Marks(folder).note_first({0, 1})
    assert Places(folder).differs(OUTPUT, {"table": "2"}) == "output/table:1..2"
    assert Gaps(folder, None).changed(4)
    assert Marks(folder).missing({}, 3, None) == {0: (None, -1), 1: (None, -1)}
    assert [deaths.count(folder, 7, QueryDied("no")) for _ in range(2)] == [1, 2]
    deaths.forget(folder)
    assert deaths.count(folder, 7, QueryDied("no")) == 1
    assert checkpoint_id(place) == checkpoint_id(place)
    assert look_into(place)[0] == IDENTITY


def test_sparks_own_logs_are_read_there(place: Place) -> None:
    offsets = 'v1\n{}\n{"t":{"0":12}}'
    for log, entry in (("offsets", "0"), ("offsets", "1"), ("commits", "0")):
        store_of(place).below(log).put(entry, offsets.encode(), durable=False)
    assert (last_batch(place), open_batch(place)) == (1, 1)
    assert (has_finished(place, 0), has_finished(place, 1)) == (True, False)
    assert committed_position(place, "t") == (0, {"0": 12})
    with pytest.raises(RefusedStart, match="has batches but no journal"):
        open_journal(place, IDENTITY)


# ------------------------------------------------------------------------------------------ lost answers


@pytest.mark.parametrize("fault", [answer_lost, tried_twice_by_the_client])
def test_a_put_whose_answer_was_lost_is_ours(server: Server, store: ObjectStore, fault: Any) -> None:
    server.faults = [fault]
    assert store.put_exclusively("a", other())


def test_a_request_that_was_lost_is_put_again(server: Server, store: ObjectStore) -> None:
    server.faults = [request_lost, request_lost]
    assert store.put_exclusively("a", b"ours")
    assert store.read("a") == b"ours"


def test_a_lost_answer_does_not_take_anothers_entry(server: Server, store: ObjectStore) -> None:
    assert store.put_exclusively("a", other())
    for fault in (answer_lost, request_lost, tried_twice_by_the_client):
        server.faults = [fault]
        assert not store.put_exclusively("a", other())


def test_an_entry_that_is_gone_again_is_put_again(server: Server, store: ObjectStore) -> None:
    def refused_and_deleted(_put: Callable[[], Any]) -> None:
        raise exceptions.AlreadyExistsError("409: a conditional request at the same time")

    server.faults = [refused_and_deleted]
    assert store.put_exclusively("a", other())


def test_a_driver_recognises_its_decision_after_a_lost_answer(server: Server) -> None:
    journal = open_journal(ObjectStore("bucket", "orders"), IDENTITY)
    server.faults = [answer_lost]
    journal.decide(3, 0, {"partitions": []})
    server.faults = [tried_twice_by_the_client]
    assert journal.claim(3)
    with pytest.raises(AnotherDriver):  # the same entry again is another put
        journal.claim(3)


def test_equal_entries_of_two_puts_differ_in_the_store(store: ObjectStore) -> None:
    assert [put_exclusively(store, "a", {"batch": 1}) for _ in range(2)] == [True, False]
    assert set(json.loads(store.read("a"))) == {"batch", "put"}
    assert read_entry(store, "a") == {"batch": 1}


# ------------------------------------------------------------------------------------------ stores that cannot be used


def test_a_store_that_never_answers_is_named(server: Server, store: ObjectStore, monkeypatch: Any) -> None:
    monkeypatch.setattr(objects, "LIMIT_S", 0.0)
    server.faults = [request_lost] * 9
    with pytest.raises(NoStore, match=r"s3://bucket/orders/journal: .* no answer .*whether a was written is not known"):
        store.put_exclusively("a", b"")


def test_a_refused_login_does_not_wait(server: Server, store: ObjectStore) -> None:
    def refused(_put: Callable[[], Any]) -> None:
        raise exceptions.PermissionDeniedError("status code: 403 Forbidden: \n<Code>SignatureDoesNotMatch</Code>")

    server.faults = [refused]
    with pytest.raises(StoreRefuses, match=r"refuses a request .*AWS_SECRET_ACCESS_KEY"):
        store.put_exclusively("a", b"")
    assert not StoreRefuses.restart_helps


def test_a_store_that_ignores_the_condition_is_refused(server: Server, store: ObjectStore) -> None:
    put = server.store.put
    server.faults = [lambda _: put("orders/journal/.probe-1", b"", mode="overwrite")] * 2
    with pytest.raises(RefusedStart, match="ignores If-None-Match"):
        store.prepare()


def test_a_check_of_generations_is_one_request(server: Server) -> None:
    journal = open_journal(ObjectStore("bucket", "orders"), IDENTITY)
    server.requests.clear()
    journal.check_still_ours()
    assert server.requests == ["list"]


# ------------------------------------------------------------------------------------------ addresses


def test_an_address_names_a_folder_or_objects(monkeypatch: Any) -> None:
    assert place_at("/data/checkpoint") == Path("/data/checkpoint")
    for address in ("s3://bucket/a/b", "s3a://bucket/a/b/", "s3://bucket//a/b"):
        assert place_at(address) == ObjectStore("bucket", "a/b")
    assert str(place_at("s3a://bucket/a")) == "s3://bucket/a"
    monkeypatch.setattr(choose, "find_spec", lambda _name: None)
    with pytest.raises(RefusedStart, match=r"not installed.*pip install '\.\[s3\]'"):
        place_at("s3://bucket/a")


@pytest.mark.parametrize(
    "address", ["s3://bucket", "s3://bucket/", "s3:///a", "s3://bucket/a/../b", "s3://bucket/a//b"]
)
def test_objects_without_a_folder_of_their_own_are_refused(address: str) -> None:
    with pytest.raises(RefusedStart, match="must name a bucket and a folder in it"):
        place_at(address)


@pytest.mark.parametrize("address", ["s3://AKIA:canary-7f3a@bucket/a", "s3a://canary-7f3a@bucket/a", "s3://b:canary/a"])
def test_a_login_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    """Hadoop took such addresses once."""
    with pytest.raises(RefusedStart, match="login into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") as refused:
        place_at(address)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("address", ["hdfs://name/cp", "gs://bucket/cp", "file:/cp", "./a:/b", "abfss://c@a/cp"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(RefusedStart, match="a URI that is not supported"):
        place_at(address)
