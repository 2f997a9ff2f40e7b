"""A quarantine travels to a worker without what the driver has counted, and says why copies failed."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError

from oncebench.delivery.errors import DeliveryFailed, PermanentFailure
from oncebench.delivery.quarantine import Quarantine


def test_a_worker_counts_its_own_copies_only() -> None:
    here = Quarantine("bad", "in", {"bootstrap.servers": "localhost:1"})
    here._counts["not-json"] += 1
    there = pickle.loads(pickle.dumps(here))
    assert (there.topic, there.source_topic, there.client) == ("bad", "in", {"bootstrap.servers": "localhost:1"})
    assert there.flush() == {}


@pytest.mark.parametrize(
    ("code", "end"),
    [(None, "quarantine topic bad: 2 copies were not acknowledged in 120 s. Look whether the topic's brokers run. A "
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
