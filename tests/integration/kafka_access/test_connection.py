"""A connection to a secured Kafka works with right settings.

With wrong settings it is refused within ten seconds, and the message names the cause.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from loadgen.client import connect
from loadgen.config import LoadConfig
from loadgen.errors import LoadError
from oncebench.delivery.errors import RefusedStart
from oncebench.errors import UserError
from oncebench.jobs.start import refuse_access
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.connection import why_refused
from oncebench.servers.kafka.external import external
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.kafka.reader import KafkaReader
from tests.authority import Authority
from tests.integration.kafka_access.secured import (
    BOTH,
    CLIENTS,
    ELSEWHERE,
    EXPIRED,
    LOGIN,
    MUTUAL,
    PASSWORD,
    TOKENS,
    Secured,
)
from tests.reading import read_all

pytestmark = pytest.mark.integration
# A refusal takes 7 s at most, and a busy machine several times that. Without a refusal, clients retry for ever.
LIMIT_S = 60.0
HOST_CHECK = "ssl.endpoint.identification.algorithm"


def mutual(secured: Secured, password: str = "") -> dict[str, str]:
    store = secured.authority.signed("locked" if password else "client", password=password)
    locked = {"ssl.key.password": password} if password else {}
    return {"security.protocol": "SSL", **secured.trust(), **secured.own(store), **locked}


Settings = Callable[[Secured], dict[str, str]]
WORK: dict[str, tuple[str, Settings]] = {
    "scram-256": (LOGIN, lambda secured: secured.settings()),
    "scram-512": (LOGIN, lambda secured: secured.settings("SCRAM-SHA-512")),
    "plain": (LOGIN, lambda secured: secured.settings("PLAIN")),
    "certificate": (MUTUAL, mutual),
    "locked certificate": (MUTUAL, lambda secured: mutual(secured, PASSWORD)),
    "login and certificate": (BOTH, lambda secured: {**mutual(secured), **secured.settings()}),
    "token": (TOKENS, lambda secured: secured.token()),
    "another host name, not checked": (ELSEWHERE, lambda secured: {**secured.settings(), HOST_CHECK: ""}),
}


@pytest.mark.parametrize("case", WORK)
def test_right_settings_reach_the_broker_with_every_client_of_ours(secured: Secured, case: str) -> None:
    listener, settings = WORK[case]
    access = KafkaAccess(secured.servers(listener), str(secured.file(settings(secured))))
    kafka = external(access)
    topic = kafka.fresh_topic("in", 1)
    producer = Producer({**access.client, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.flush(30)
    with Coordinator.of(access.client) as coordinator:
        assert [each.state for each in coordinator.listed(topic)] == ["Ongoing"]
    producer.commit_transaction(30)
    assert read_all(KafkaReader.of(access.client, topic), settle_s=60).value == [b"value"]


def strange(secured: Secured) -> Authority:
    return Authority(secured.authority.certificate.parent / "strange", "strange")


REFUSED: dict[str, tuple[str, Settings, str]] = {
    "wrong authority": (
        LOGIN,
        lambda secured: {**secured.settings(), **secured.trust(strange(secured))},
        r"signed by an authority that is not trusted here .*ssl\.truststore\.location",
    ),
    "wrong host name": (
        ELSEWHERE,
        lambda secured: secured.settings(),
        r"is for another host name .*Name the brokers as in their certificate",
    ),
    "expired certificate": (
        EXPIRED,
        lambda secured: secured.settings(),
        r"is not valid now \(certificate has expired\)\. Renew it",
    ),
    "wrong password": (
        LOGIN,
        lambda secured: secured.settings(password="canary-wrong"),
        r"refuses the login of user 'alice' with SCRAM-SHA-256: user or password is wrong",
    ),
    "wrong password, plain": (
        LOGIN,
        lambda secured: secured.settings("PLAIN", password="canary-wrong"),
        r"refuses the login of user 'alice' with PLAIN: user or password is wrong",
    ),
    "mechanism that the listener has not": (
        TOKENS,
        lambda secured: secured.settings(),
        r"does not have sasl\.mechanism SCRAM-SHA-256",
    ),
    "wrong secret of the token's client": (
        TOKENS,
        lambda secured: secured.token("canary-wrong"),
        r"no token for client 'alice' is accepted .*sasl\.oauthbearer\.token\.endpoint\.url",
    ),
    "no certificate of the client": (
        MUTUAL,
        lambda secured: {"security.protocol": "SSL", **secured.trust()},
        r"requires a client's certificate .*ssl\.keystore\.location",
    ),
    "certificate of another authority": (
        MUTUAL,
        lambda secured: {**mutual(secured), **secured.own(strange(secured).signed("client"))},
        r"refuses this client's certificate|requires a client's certificate that it trusts",
    ),
    "expired certificate of the client": (
        MUTUAL,
        lambda secured: {**mutual(secured), **secured.own(secured.authority.signed("old", days=-1))},
        r"refuses this client's certificate",
    ),
    "wrong password of the key": (
        MUTUAL,
        lambda secured: {**mutual(secured, PASSWORD), "ssl.key.password": "canary-wrong"},
        r"a file of certificates or its key cannot be used .*ssl\.key\.password",
    ),
    "TLS to a plaintext listener": (
        CLIENTS,
        lambda secured: secured.settings(),
        r"does not (answer a TLS handshake|speak TLS)\. Correct security\.protocol",
    ),
    "plaintext to a TLS listener": (
        LOGIN,
        lambda _secured: {},
        r"If it requires TLS or a login, give its settings with --kafka-conf",
    ),
    "TLS without the login": (
        LOGIN,
        lambda secured: {"security.protocol": "SSL", **secured.trust()},
        r"Check security\.protocol, sasl\.mechanism and the listener",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_settings_are_refused_by_their_cause(secured: Secured, case: str) -> None:
    listener, settings, message = REFUSED[case]
    access = KafkaAccess(secured.servers(listener), str(secured.file(settings(secured))))
    began = time.monotonic()
    with pytest.raises(UserError, match=message) as refused:
        external(access)
    assert time.monotonic() - began < LIMIT_S
    assert "canary" not in str(refused.value)


LASTING = ("wrong authority", "wrong host name", "expired certificate", "wrong password")


@pytest.mark.parametrize("case", LASTING)
def test_a_job_and_a_load_are_refused_by_the_same_cause(secured: Secured, case: str, tmp_path: Path) -> None:
    listener, settings, message = REFUSED[case]
    conf = str(secured.file(settings(secured)))
    client = KafkaAccess(secured.servers(listener), conf).client
    for error, refuse in (
        (RefusedStart, lambda: refuse_access(client)),
        (LoadError, lambda: connect(LoadConfig(secured.servers(listener), "t", 1, 1, tmp_path, kafka_conf=conf))),
    ):
        began = time.monotonic()
        with pytest.raises(error, match=message):
            refuse()
        assert time.monotonic() - began < LIMIT_S


@contextmanager
def black_hole() -> Iterator[str]:
    """An address that swallows connections, as a firewall does: the queue of its socket is full."""
    with socket.socket() as server, ExitStack() as clients:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield "{}:{}".format(*server.getsockname())


@pytest.mark.parametrize("listener", [LOGIN, CLIENTS])
def test_dead_addresses_leave_time_for_the_login(secured: Secured, listener: str) -> None:
    conf = str(secured.file(secured.settings())) if listener == LOGIN else ""
    with black_hole() as one, black_hole() as two, black_hole() as three:
        access = KafkaAccess(f"{one},{two},{three},{secured.servers(listener)}", conf)
        began = time.monotonic()
        external(access)
        if listener == LOGIN:
            refuse_access(access.client)
            assert why_refused(access.client) is None
        assert time.monotonic() - began < 2 * LIMIT_S


def test_a_broker_that_is_away_does_not_refuse_a_job(secured: Secured) -> None:
    refuse_access(KafkaAccess("127.0.0.1:1", str(secured.file(secured.settings()))).client)
