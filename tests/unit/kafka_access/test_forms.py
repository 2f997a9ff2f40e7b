"""One file of Java properties has the same meaning for every client.

The clients are librdkafka, kafka-python and Spark.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from loadgen.client import DEFAULTS
from oncebench.kafka_access import jaas
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.forms import described, jvm_options, to_java, to_kafka_python, to_spark, weaknesses
from oncebench.kafka_access.jaas import MODULES
from oncebench.kafka_access.tokens import TokenEndpoint
from oncebench.kafka_repair.admin import admin_client
from tests.unit.kafka_access.files import CERTIFICATE, KEY, LOCKED_KEY, access, login

HOST_CHECK = "ssl.endpoint.identification.algorithm"


def test_a_plaintext_kafka_gets_the_addresses_and_nothing_else() -> None:
    plain = KafkaAccess("b:1")
    assert plain.client == {"bootstrap.servers": "b:1"}
    assert to_kafka_python(plain.client) == {"bootstrap_servers": "b:1"}
    assert to_spark(plain.client) == {"kafka.bootstrap.servers": "b:1"}
    assert described(plain.client) == {}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_and_password_reach_every_client(tmp_path: Path, mechanism: str) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    found = access(
        tmp_path,
        {**login(mechanism, "alice", "p\"w\\d;='"), "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"},
    )
    authority = str(tmp_path / "ca.pem")
    assert found.client == {
        "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "sasl.username": "alice", "sasl.password": 'p"w\\d;=\'', "ssl.ca.location": authority, HOST_CHECK: "https",
    }  # fmt: skip
    assert to_kafka_python(found.client) == {
        "bootstrap_servers": "b:1", "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice", "sasl_plain_password": 'p"w\\d;=\'', "ssl_cafile": authority,
        "ssl_check_hostname": True, "ssl_certfile": None, "ssl_keyfile": None, "ssl_password": None,
    }  # fmt: skip
    java = to_java(found.client)
    assert java == {
        "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, HOST_CHECK: "https",
        "ssl.truststore.type": "PEM", "ssl.truststore.location": authority,
        "sasl.jaas.config": f'{MODULES[mechanism]} required username="alice" password="p\\"w\\\\d;=\'";',
    }  # fmt: skip
    assert to_spark(found.client) == {f"kafka.{name}": value for name, value in java.items()}
    assert found.spark_options == to_spark(found.client)


def test_javas_form_read_again_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "client.pem").write_text(CERTIFICATE + LOCKED_KEY)
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "client.pem", "ssl.key.password": "k"}
    first = access(tmp_path, {**login("PLAIN", "alice", "p w"), **store})
    java = to_java(first.client)
    assert KafkaAccess(java.pop("bootstrap.servers"), settings=java).client == first.client


def test_a_certificate_of_the_client_reaches_every_client(tmp_path: Path) -> None:
    own = tmp_path / "client.pem"
    own.write_text(CERTIFICATE + KEY)
    found = access(
        tmp_path,
        {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)},
    )
    assert found.client["ssl.certificate.location"] == found.client["ssl.key.location"] == str(own)
    wire, java = to_kafka_python(found.client), to_java(found.client)
    assert (wire["ssl_certfile"], wire["ssl_keyfile"], wire["ssl_password"]) == (str(own), str(own), None)
    assert (java["ssl.keystore.type"], java["ssl.keystore.location"]) == ("PEM", str(own))
    assert described(found.client)["security"]["client_certificate"] is True


def test_a_token_endpoint_reaches_every_client(tmp_path: Path) -> None:
    options = 'clientId="orders" clientSecret="s" scope="kafka"'
    url = "https://login.example/token"
    given = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULES['OAUTHBEARER']} required {options};",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.login.callback.handler.class":
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    }  # fmt: skip
    found = access(tmp_path, given)
    assert found.client["sasl.oauthbearer.method"] == "oidc"
    assert found.client["sasl.oauthbearer.client.secret"] == "s"
    assert isinstance(to_kafka_python(found.client)["sasl_oauth_token_provider"], TokenEndpoint)
    java = to_java(found.client)
    assert java["sasl.jaas.config"] == f"{MODULES['OAUTHBEARER']} required {options};"
    assert java["sasl.oauthbearer.token.endpoint.url"] == url
    assert java["sasl.login.callback.handler.class"].endswith(".oauthbearer.OAuthBearerLoginCallbackHandler")
    assert jvm_options(found.client) == (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}",)


@pytest.mark.parametrize(
    ("algorithm", "checks"), [({}, True), ({HOST_CHECK: "https"}, True), ({HOST_CHECK: ""}, False)]
)
def test_the_host_name_is_checked_unless_it_is_switched_off(
    tmp_path: Path, algorithm: Mapping[str, str], checks: bool
) -> None:
    found: dict[str, Any] = access(tmp_path, {"security.protocol": "SSL", **algorithm}).client
    assert found[HOST_CHECK] == ("https" if checks else "none")
    assert to_kafka_python(found)["ssl_check_hostname"] is checks
    assert to_java(found)[HOST_CHECK] == ("https" if checks else "")
    assert bool(weaknesses(found)) is not checks


def test_a_login_without_encryption_is_reported(tmp_path: Path) -> None:
    found = access(tmp_path, {**login("PLAIN", "a", "b"), "security.protocol": "SASL_PLAINTEXT"})
    assert described(found.client) == {
        "security": {
            "protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "client_certificate": False,
            "weaknesses": ["connections to Kafka are not encrypted (SASL_PLAINTEXT)"],
        }
    }  # fmt: skip


def test_a_secret_that_is_sent_to_an_unencrypted_endpoint_is_reported(tmp_path: Path) -> None:
    def weak(url: str) -> list[str]:
        options = f'{MODULES["OAUTHBEARER"]} required clientId="a" clientSecret="b";'
        given = {**login("OAUTHBEARER", "", ""), "sasl.jaas.config": options}
        return weaknesses(access(tmp_path, {**given, "sasl.oauthbearer.token.endpoint.url": url}).client)

    assert weak("https://login.example/token") == []
    assert weak("http://login.example/token") == [
        "the secret of the tokens' client is not encrypted on its way to the token endpoint (http)"
    ]


@pytest.mark.parametrize(
    ("quoted", "value"),
    [(r'"a\\tb"', r"a\tb"), (r'"a\tb"', "a\tb"), (r'"\101\7\478"', "A\x07'8"), (r"'a\"b'", 'a"b'), (r'"\z"', "z")],
)
def test_a_quoted_text_has_javas_escapes(quoted: str, value: str) -> None:
    text = f'{MODULES["PLAIN"]} required username="a" password={quoted};'
    assert jaas.options_of(text, "PLAIN", "here")["password"] == value


@pytest.mark.parametrize("password", ["\"\\;=' ", "a\nb\r", r"\101", r"\t\a"])
def test_a_password_is_the_same_after_javas_form(password: str) -> None:
    text = jaas.config_of("PLAIN", {"username": "a", "password": password})
    assert "\n" not in text
    assert jaas.options_of(text, "PLAIN", "here")["password"] == password


def test_only_settings_of_the_connection_are_taken_from_a_file(tmp_path: Path) -> None:
    given = {"client.id": "me", "schema.registry.url": "https://x", "acks": "all", "linger.ms": "5",
             "message.timeout.ms": "60000"}  # fmt: skip
    found = access(tmp_path, given)
    assert found.client == {"bootstrap.servers": "b:1", "client.id": "me"}
    assert found.unused == ("acks", "linger.ms", "message.timeout.ms", "schema.registry.url")
    assert to_spark(found.client) == {"kafka.bootstrap.servers": "b:1", "kafka.client.id": "me"}


ACCEPTED = [
    ("connections.max.idle.ms", "0"), ("connections.max.idle.ms", "540000"), ("metadata.max.age.ms", "86400000"),
    ("client.dns.lookup", "use_all_dns_ips"), ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only"),
    ("reconnect.backoff.ms", "0"), ("reconnect.backoff.max.ms", "3600000"), ("retry.backoff.ms", "300000"),
    ("retry.backoff.max.ms", "1000"), ("socket.connection.setup.timeout.ms", "1000"), ("client.rack", ""),
]  # fmt: skip
OUTSIDE = [
    ("connections.max.idle.ms", "-1"), ("client.dns.lookup", "default"), ("metadata.max.age.ms", "0"),
    ("metadata.max.age.ms", "86400001"), ("reconnect.backoff.ms", "3600001"), ("reconnect.backoff.max.ms", "-1"),
    ("retry.backoff.ms", "0"), ("retry.backoff.max.ms", "300001"), ("socket.connection.setup.timeout.ms", "500"),
    ("socket.connection.setup.timeout.ms", "2147483648"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_a_setting_that_all_clients_accept_has_an_effect(tmp_path: Path, name: str, value: str) -> None:
    found = access(tmp_path, {name: value})
    assert (found.client[name], found.unused) == (value, ())
    AdminClient({**found.client, "log_level": 0})


@pytest.mark.parametrize(
    ("given", "first", "most"),
    [
        ({"reconnect.backoff.ms": "2000"}, "2000", "2000"),
        ({"reconnect.backoff.ms": "20000"}, "20000", "20000"),
        ({"reconnect.backoff.ms": "100"}, "100", "1000"),
        ({"reconnect.backoff.max.ms": "10"}, "10", "10"),
        ({"reconnect.backoff.max.ms": "30000"}, "50", "30000"),
        ({"reconnect.backoff.ms": "5000", "reconnect.backoff.max.ms": "1000"}, "1000", "1000"),
        ({"reconnect.backoff.ms": "soon"}, "soon", None),
    ],
)
def test_back_off_times_fit_each_other_in_every_client(
    tmp_path: Path, given: dict[str, str], first: str, most: str | None
) -> None:
    """librdkafka refuses a first time above the longest one, which each of our clients has a default for."""
    found = access(tmp_path, given)
    assert (found.client["reconnect.backoff.ms"], found.client.get("reconnect.backoff.max.ms")) == (first, most)
    assert found.unused == ()
    if most is not None:
        admin_client({**found.client, "log_level": 0})
        Producer({**DEFAULTS, **found.client, "log_level": 0})


@pytest.mark.parametrize(("name", "value"), OUTSIDE)
def test_a_setting_that_only_java_accepts_has_no_effect_in_a_file(tmp_path: Path, name: str, value: str) -> None:
    found = access(tmp_path, {name: value})
    assert (found.client, found.unused) == ({"bootstrap.servers": "b:1"}, (name,))
    asked = KafkaAccess("b:1", settings={name: value})
    assert asked.client[name] == value, "an option that has no effect would be ignored silently"
    with pytest.raises(KafkaException, match=name):
        AdminClient({**asked.client, "log_level": 0})


@pytest.mark.parametrize("name", ["retry.backoff.ms", "client.dns.lookup"])
def test_a_value_that_no_client_accepts_is_not_ignored(tmp_path: Path, name: str) -> None:
    assert access(tmp_path, {name: "soon"}).client[name] == "soon"


def test_the_probe_checks_what_the_clients_check(tmp_path: Path) -> None:
    from oncebench.kafka_access.forms import tls_context

    on = tls_context(access(tmp_path, {"security.protocol": "SSL"}).client)
    off = tls_context(access(tmp_path, {"security.protocol": "SSL", HOST_CHECK: ""}).client)
    assert (on.check_hostname, off.check_hostname) == (True, False)
    assert on.verify_mode == off.verify_mode == ssl.CERT_REQUIRED
