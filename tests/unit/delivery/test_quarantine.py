"""A quarantine travels to a worker without what the driver has counted.

It reports why copies failed.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from oncebench.delivery import quarantine
from oncebench.delivery.copies.originals import Original, Position
from oncebench.delivery.errors import DeliveryFailed, PermanentFailure
from oncebench.delivery.quarantine import Quarantine


def test_a_worker_counts_its_own_copies_only() -> None:
    here = Quarantine("bad", "in", {"bootstrap.servers": "localhost:1"})
    here._counts["not-json"] += 1
    there = pickle.loads(pickle.dumps(here))
    assert (there.topic, there.source_topic, there.client) == ("bad", "in", {"bootstrap.servers": "localhost:1"})
    assert there.flush() == {}


class Reader:
    """Stands for `Originals`: fails with the password `old`."""

    def __init__(self, client: Mapping[str, Any], _limit_s: float) -> None:
        self.client = client
        made.append(self)

    def read(self, _topic: str, places: list[Position]) -> dict[Position, Original]:
        if self.client["sasl.password"] == "old":
            raise DeliveryFailed("no records came")
        return dict.fromkeys(places, Original())


made: list[Reader] = []


def user(name: str, password: str = "valid") -> Quarantine:
    return Quarantine("bad", "in", {"bootstrap.servers": "b:1", "sasl.username": name, "sasl.password": password})


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[Reader]:
    monkeypatch.setattr(quarantine, "Originals", Reader)
    monkeypatch.setattr(quarantine, "_originals", {})
    made.clear()
    return made


def test_each_login_has_clients_of_its_own(readers: list[Reader]) -> None:
    for name in ("one", "other", "one"):
        user(name)._read([(0, 1)])
    assert [reader.client["sasl.username"] for reader in readers] == ["one", "other"]
    assert user("one")._key != user("other")._key


def test_a_reader_that_failed_is_never_used_again(readers: list[Reader]) -> None:
    for _ in range(2):
        with pytest.raises(DeliveryFailed):
            user("one", "old")._read([(0, 1)])
    assert len(readers) == 2


def test_a_callback_needs_no_new_client() -> None:
    one, other = (Quarantine("bad", "in", {"bootstrap.servers": "b:1", "oauth_cb": lambda _: ("", 0)}) for _ in "ab")
    assert one._key == other._key


@pytest.mark.parametrize(
    ("code", "end"),
    [(None, "quarantine topic bad: 2 copies were not acknowledged in 120 s. Check that the topic's brokers run. A "
      "restart of the pipeline copies them again."),
     (KafkaError._ALL_BROKERS_DOWN, "A restart of the pipeline copies them again."),
     (KafkaError.TOPIC_AUTHORIZATION_FAILED, "--operation Write --topic bad, then start again.")],
)  # fmt: skip
def test_copies_that_failed_say_what_to_do(monkeypatch: pytest.MonkeyPatch, code: int | None, end: str) -> None:
    quarantine = Quarantine("bad", "in", {"bootstrap.servers": "localhost:1"})
    quarantine._counts["not-json"] += 2
    monkeypatch.setattr(quarantine, "_acknowledge", lambda: 2)
    if code is not None:
        quarantine._failed.append(KafkaError(code))
    with pytest.raises(DeliveryFailed) as failed:
        quarantine.flush()
    assert isinstance(failed.value, PermanentFailure) == (code == KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert str(failed.value).endswith(end)
    assert "no table has this code" not in str(failed.value)
    assert "writes the batch again" not in str(failed.value)
