"""Claims of a driver on its sink_id in Kafka.

The tests cover a batch that Kafka does not take, and a name over another's.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, OlderDriver, PermanentFailure, PipelineError
from oncebench.delivery.failures.cause import RESTART, dropped
from oncebench.sinks.kafka.drivers.claims import Claims, stop_if_older
from oncebench.sinks.kafka.markers import Noted
from oncebench.sinks.kafka.names import Names


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (KafkaError._WAIT_COORD, DeliveryFailed, "Start the missing brokers"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, PermanentFailure, "--operation Read --group s. "),
    ],
)
def test_a_claim_that_failed_says_what_to_do_and_that_the_rows_are_dropped(
    code: int, kind: type[DeliveryFailed], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(**_given: Any) -> None:
        raise KafkaException(KafkaError(code))

    none = SimpleNamespace(offset=-1001, error=None)
    client = SimpleNamespace(commit=commit, committed=lambda *_, **__: [none])
    monkeypatch.setattr("oncebench.sinks.kafka.drivers.claims.member_of", lambda *_: client)
    with pytest.raises(DeliveryFailed, match=r"batch 7 was not written.*in the cluster") as failed:
        Claims({}, Names("s", 1, "out")).put(7)
    assert type(failed.value) is kind
    assert advice in str(failed.value)
    assert str(failed.value).endswith(dropped(7))
    assert RESTART not in str(failed.value)


def test_an_overtaken_driver_does_not_replace_its_successors_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = SimpleNamespace(offset=2, metadata='{"driver": "them"}', error=None)
    client = SimpleNamespace(committed=lambda *_, **__: [newer], commit=lambda **_: pytest.fail("replaced"))
    monkeypatch.setattr("oncebench.sinks.kafka.drivers.claims.member_of", lambda *_: client)
    with pytest.raises(AnotherDriver):
        Claims({}, Names("s", 1, "out", "us")).put(7)


@pytest.mark.parametrize(
    ("number", "driver", "kind"),
    [
        (6, "us", None),
        (5, "us", None),
        (5, "them", OlderDriver),
        (6, "them", AnotherDriver),
        (7, "them", AnotherDriver),
    ],
)
def test_a_restart_helps_only_against_an_older_start(
    number: int, driver: str, kind: type[PipelineError] | None
) -> None:
    newest, ours = Noted(number, f'{{"driver": "{driver}"}}'), Names("s", 6, "out", "us")
    if kind is None:
        stop_if_older(newest, ours)
        return
    with pytest.raises(PipelineError, match=f"generation {number}") as stopped:
        stop_if_older(newest, ours)
    assert type(stopped.value) is kind
