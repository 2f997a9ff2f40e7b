"""Several addresses of a secured Kafka are judged together, and within the limit."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from oncebench.kafka_access import connection
from oncebench.kafka_access.connection import Refusal, addresses, why_no_tls, why_refused

TLS = {"security.protocol": "SSL"}
LATE = "ssl://b:1/bootstrap: Receive failed: error:0A000416:SSL routines::ssl/tls alert certificate unknown: SSL alert"
AWAY, WRONG = Refusal("away", lasting=False), Refusal("wrong", lasting=True)


class Cluster:
    """Answers of TLS by port, and of a request."""

    def __init__(self, tls: Mapping[int, Refusal | None], answers: bool = True, alert: str = "") -> None:
        self.tls, self.answers, self.alert = tls, answers, alert
        self.looked: list[tuple[int, float]] = []
        self.logins: list[Mapping[str, Any]] = []
        self.requests = 0

    def why_no_tls(self, _client: Any, _host: str, port: int, limit_s: float) -> Refusal | None:
        self.looked.append((port, limit_s))
        return self.tls[port]

    def list_topics(self, timeout: float) -> None:
        self.requests += 1
        if not self.answers:
            if self.alert:
                self.error_cb(KafkaError(KafkaError._TRANSPORT, self.alert))
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def admin(self, settings: Mapping[str, Any]) -> SimpleNamespace:
        self.error_cb = settings["error_cb"]
        self.logins.append(settings)
        return SimpleNamespace(list_topics=self.list_topics, poll=lambda _timeout: None)

    def refusal(self, monkeypatch: pytest.MonkeyPatch, limit_s: float = 8.0) -> Refusal | None:
        monkeypatch.setattr(connection, "why_no_tls", self.why_no_tls)
        monkeypatch.setattr(connection, "AdminClient", self.admin)
        servers = ",".join(f"b:{port}" for port in self.tls)
        return why_refused({**TLS, "bootstrap.servers": servers}, limit_s)


def test_a_broker_that_is_away_is_no_reason_if_another_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({1: AWAY, 2: None, 3: AWAY})
    assert cluster.refusal(monkeypatch) is None
    assert [login["bootstrap.servers"] for login in cluster.logins] == ["b:2"]


def test_addresses_that_swallow_packets_use_up_no_time_of_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = Event()

    class Half(Cluster):
        def why_no_tls(self, client: Any, host: str, port: int, limit_s: float) -> Refusal | None:
            found = super().why_no_tls(client, host, port, limit_s)
            if found is not None:
                assert answered.wait(60), "the address that answers is asked only after these"
            return found

        def list_topics(self, timeout: float) -> None:
            answered.set()
            super().list_topics(timeout)

    assert Half({1: AWAY, 2: AWAY, 3: AWAY, 4: None}).refusal(monkeypatch) is None
    assert answered.is_set()


def test_a_lasting_cause_is_named_before_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Cluster({1: AWAY, 2: WRONG}).refusal(monkeypatch) == WRONG
    assert Cluster({1: AWAY, 2: AWAY}).refusal(monkeypatch) == AWAY


def test_a_broker_is_asked_though_others_have_used_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({1: AWAY, 2: None})
    assert cluster.refusal(monkeypatch, limit_s=-1.0) is None
    assert cluster.requests == 1
    assert max(limit for _, limit in cluster.looked) < 1
    monkeypatch.setattr(connection, "_LOGIN_S", 0.0)
    silent = Cluster({1: None}, answers=False).refusal(monkeypatch, limit_s=-1.0)
    assert silent is not None
    assert (silent.lasting, "does not answer this client" in silent.why) == (False, True)


def test_a_certificate_that_a_busy_broker_refuses_late_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({1: None}, answers=False, alert=LATE)
    refusal = cluster.refusal(monkeypatch)
    assert refusal is not None
    assert refusal.why.startswith("the broker refuses this client's certificate (ssl/tls alert certificate unknown)")
    assert (refusal.lasting, cluster.requests) == (True, 1)


def test_a_wrong_form_of_an_address_is_lasting() -> None:
    found = why_refused({**TLS, "bootstrap.servers": "b:1,c:x"})
    assert found == Refusal("'c:x' is not an address of the form host:port. Correct it", lasting=True)


@pytest.mark.parametrize(
    "servers", ["b..corp:9092", f"{'b' * 64}.corp:9092", "SASL_SSL:/b:9092", "b:0", "b:99999", "b:9092;c:9092", ":1"]
)
def test_what_is_no_address_is_not_tried(servers: str) -> None:
    """A port above 65535 would be another port, and a name that cannot be encoded an error of no network."""
    with pytest.raises(ValueError, match=servers) as refused:
        addresses(servers)
    assert type(refused.value) is ValueError


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ("b_1.corp.:9092, 10.0.0.1:1", [("b_1.corp.", 9092), ("10.0.0.1", 1)]),
        ("[::1]:9093,[fe80::1%eth0]:9093", [("::1", 9093), ("fe80::1%eth0", 9093)]),
        ("SASL_SSL://b:9092,SASL_SSL://[::1]:1", [("b", 9092), ("::1", 1)]),
        ("käse.example:9092,b", [("käse.example", 9092), ("b", 9092)]),
    ],
)
def test_every_address_is_found(servers: str, found: list[tuple[str, int]]) -> None:
    assert addresses(servers) == found


def test_a_broker_that_nobody_reaches_is_not_said_to_lack_tls() -> None:
    found = why_no_tls(TLS, "127.0.0.1", 1)
    assert found is not None
    assert found.why.startswith("127.0.0.1:1 cannot be reached (connection refused)")
    assert not found.lasting
