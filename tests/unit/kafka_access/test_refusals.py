"""What the settings of a Kafka may not be.

Each refusal names the setting, the reason and the next step.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from pathlib import Path

import pytest

from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.jaas import MODULES
from oncebench.kafka_access.properties import line_of, parsed, read_properties
from oncebench.kafka_access.refused import FIXED, AccessRefused, is_secret
from tests.unit.kafka_access.files import CERTIFICATE, KEY, LOCKED_KEY, PBES2_KEY, access, login

SECRET = "canary-7f3a"
TLS = {"security.protocol": "SSL"}
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
# librdkafka's other names of a setting, and settings of one client that have the same effect.
ELSEWHERE_NAMED = ("request.required.acks", "message.send.max.retries", "max.in.flight", "auto.commit.enable",
                   "metadata.broker.list", "delivery.report.only.error", "plugin.library.paths",
                   "test.mock.num.brokers")  # fmt: skip


def scram(options: str) -> dict[str, str]:
    entry = f"{MODULES['SCRAM-SHA-256']} required {options};"
    return {**login("SCRAM-SHA-256", "", ""), "sasl.jaas.config": entry}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is none of PLAINTEXT, SSL"),
        ({"ssl.truststore.type": "PEM"}, "ssl.truststore.type has no effect with security.protocol PLAINTEXT"),
        ({**TLS, "sasl.mechanism": "PLAIN"}, "sasl.mechanism has no effect with security.protocol SSL"),
        ({**TLS, "ssl.cipher.suites": "x"}, "ssl.cipher.suites is not supported"),
        ({**TLS, "ssl.keystore.key": SECRET}, "ssl.keystore.key is not supported. Use ssl.keystore.location"),
        ({**TLS, "ssl.truststore.password": SECRET}, "a PEM store has no password"),
        ({**TLS, "ssl.endpoint.identification.algorithm": "ldaps"}, "neither https nor empty"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism GSSAPI, Kafka's default, is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism GSSAPI is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        ({**login("PLAIN", "a", SECRET), "sasl.mechanism": "SCRAM-SHA-256"}, "names PlainLoginModule, and"),
        ({**login("PLAIN", "a", SECRET), "sasl.jaas.config": f"password={SECRET}"}, "is not of the form"),
        ({**login("PLAIN", "a", ""), "sasl.jaas.config": f'{MODULES["PLAIN"]} required username="a";'}, "no password"),
        ({**login("OAUTHBEARER", "a", SECRET)}, "must be the https address of a token endpoint"),
        ({**login("OAUTHBEARER", "a", "b"), ENDPOINT: f"https://u:{SECRET}@x/token"}, "contains a user or a password"),
        (scram(f'username="{SECRET}" password=""'), "the password in sasl.jaas.config is empty. Correct it"),
        ({**login("PLAIN", "a", ""), "sasl.jaas.config": f"{MODULES['PLAIN']} required", "username": SECRET},
         "has no username. Add it. If the setting has several lines, each but the last must end with \\"),
        ({**login("OAUTHBEARER", "a", "b"), "sasl.oauthbearer.client.credentials.client.secret": SECRET},
         "client.secret is not supported. Use sasl.jaas.config, with the option clientSecret"),
        ({**login("OAUTHBEARER", "a", "b"), "sasl.oauthbearer.scope": SECRET},
         "sasl.oauthbearer.scope is not supported. Use sasl.jaas.config, with the option scope"),
        (scram(f'username="a" password="{SECRET}" tokenauth="true"'), "the option tokenauth in sasl.jaas.config is"),
        (scram(f'username="a" password="{SECRET}\n"'), "is not of the form"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_work_is_refused(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(AccessRefused, match=re.escape(message)) as refused:
        access(tmp_path, settings)
    assert SECRET not in str(refused.value)
    assert "client.properties" in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "form", "commands"),
    [
        ("truststore", "JKS", ["keytool -importkeystore -srckeystore", "openssl pkcs12 -in store.p12 -nokeys -out ca"]),
        ("truststore", "PKCS12", ["openssl pkcs12 -in ", " -nokeys -out ca.pem"]),
        (
            "keystore",
            "JKS",
            ["keytool -importkeystore -srckeystore", "openssl pkcs12 -in store.p12 -nodes -out client"],
        ),
        ("keystore", None, ["is of type JKS"]),
    ],
)
def test_a_store_that_only_java_reads_is_refused_with_the_commands_that_convert_it(
    tmp_path: Path, kind: str, form: str | None, commands: list[str]
) -> None:
    named = {} if form is None else {f"ssl.{kind}.type": form}
    with pytest.raises(AccessRefused) as refused:
        access(tmp_path, {**TLS, **named, f"ssl.{kind}.location": "/etc/kafka/store"})
    assert all(command in str(refused.value) for command in [*commands, "/etc/kafka/store", f"ssl.{kind}.type=PEM"])


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("truststore", "hello", "has no certificate in PEM form"),
        ("truststore", None, "cannot be read: No such file"),
        ("keystore", CERTIFICATE, "must have the client's certificates and its private key"),
        ("keystore", KEY, "must have the client's certificates and its private key"),
        ("keystore", CERTIFICATE + KEY.replace("PRIVATE", "RSA PRIVATE"), "openssl pkcs8 -topk8 -nocrypt -in"),
        ("keystore", CERTIFICATE + LOCKED_KEY, "Give its password as ssl.key.password"),
    ],
)
def test_a_pem_store_with_another_content_is_refused(tmp_path: Path, kind: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "store.pem").write_text(text)
    with pytest.raises(AccessRefused, match=message):
        access(tmp_path, {**TLS, f"ssl.{kind}.type": "PEM", f"ssl.{kind}.location": "store.pem"})


def test_a_key_that_java_cannot_decrypt_is_refused(tmp_path: Path) -> None:
    (tmp_path / "client.pem").write_text(CERTIFICATE + PBES2_KEY)
    store = {**TLS, "ssl.keystore.type": "PEM", "ssl.keystore.location": "client.pem", "ssl.key.password": SECRET}
    with pytest.raises(AccessRefused, match="openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in"):
        access(tmp_path, store)
    (tmp_path / "client.pem").write_text(CERTIFICATE + LOCKED_KEY)
    access(tmp_path, store)


@pytest.mark.parametrize("password", [SECRET, ""])
def test_a_password_of_a_key_that_is_not_encrypted_is_refused(tmp_path: Path, password: str) -> None:
    """Java decrypts a key whenever there is a password; OpenSSL ignores it."""
    (tmp_path / "client.pem").write_text(CERTIFICATE + KEY)
    store = {**TLS, "ssl.keystore.type": "PEM", "ssl.keystore.location": "client.pem"}
    access(tmp_path, store)
    with pytest.raises(AccessRefused, match=r"client\.pem is not encrypted.*Remove ssl\.key\.password$") as refused:
        access(tmp_path, {**store, "ssl.key.password": password})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", sorted({*FIXED, *ELSEWHERE_NAMED}))
def test_a_setting_that_would_undo_a_guarantee_is_refused_by_name(tmp_path: Path, name: str) -> None:
    for refuse in (lambda: access(tmp_path, {name: "0"}), lambda: KafkaAccess("b:1", settings={name: "0"})):
        with pytest.raises(AccessRefused, match=rf"{name} cannot be set here: \w+"):
            refuse()


@pytest.mark.parametrize("protocol", [{}, TLS])
@pytest.mark.parametrize(
    "name", ["enable.ssl.certificate.verification", "enable.sasl.oauthbearer.unsecure.jwt", "https.ca.location",
             "security.providers"],
)  # fmt: skip
def test_a_check_that_only_one_client_would_leave_out_is_refused(
    tmp_path: Path, protocol: dict[str, str], name: str
) -> None:
    for refuse in (
        lambda: access(tmp_path, {**protocol, name: "false"}),
        lambda: KafkaAccess("b:1", settings={**protocol, name: "false"}),
    ):
        with pytest.raises(AccessRefused, match=f"{name} is not supported"):
            refuse()


def test_a_path_that_is_given_in_code_is_the_same_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    monkeypatch.chdir(tmp_path)
    given = KafkaAccess("b:1", settings={**TLS, "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"})
    monkeypatch.chdir("/")
    assert KafkaAccess.of_json(given.as_json()) == given
    assert given.client["ssl.ca.location"] == str(tmp_path / "ca.pem")


def test_a_file_may_repeat_our_own_value_and_an_option_may_not(tmp_path: Path) -> None:
    assert access(tmp_path, {"acks": "all", "isolation.level": "read_committed"}).unused == ("acks", "isolation.level")
    with pytest.raises(AccessRefused, match="acks cannot be set"):
        KafkaAccess("b:1", settings={"acks": "all"})


def test_addresses_may_come_from_the_file(tmp_path: Path) -> None:
    assert access(tmp_path, {"bootstrap.servers": "file:1"}, servers="").bootstrap_servers == "file:1"
    assert access(tmp_path, {"bootstrap.servers": "file:1"}, servers="given:1").bootstrap_servers == "given:1"
    with pytest.raises(AccessRefused, match=r"has no bootstrap\.servers"):
        access(tmp_path, {}, servers="")


def test_a_value_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = login("PLAIN", "alice", "${env:KAFKA_PASSWORD}")
    with pytest.raises(AccessRefused, match=r"sasl\.jaas\.config needs the environment variable KAFKA_PASSWORD"):
        access(tmp_path, given)
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    assert access(tmp_path, given).client["sasl.password"] == SECRET
    with pytest.raises(AccessRefused, match="the provider 'file', and only env is supported"):
        access(tmp_path, login("PLAIN", "alice", "${file:/etc/secret:password}"))


def test_no_text_of_the_value_has_a_secret(tmp_path: Path) -> None:
    found = access(tmp_path, login("SCRAM-SHA-256", "alice", SECRET))
    texts = [repr(found), str(found), repr(found.client), f"{found.client}", json.dumps(found.as_json()),
             json.dumps(dataclasses.asdict(found))]  # fmt: skip
    assert [text for text in texts if SECRET in text] == []
    assert "alice" in repr(found.client)
    assert found.as_json() == {"bootstrap_servers": "b:1", "kafka_conf": str(tmp_path / "client.properties")}
    assert KafkaAccess.of_json(found.as_json()) == found
    assert pickle.loads(pickle.dumps(found)).client["sasl.password"] == SECRET
    assert hash(found) == hash(KafkaAccess.of_json(found.as_json()))


def test_a_secret_that_was_given_in_code_reaches_no_file() -> None:
    given = KafkaAccess("b:1", settings=login("PLAIN", "alice", SECRET))
    assert SECRET not in repr(given)
    with pytest.raises(ValueError, match=r"sasl\.jaas\.config: a secret must be in a file of its own"):
        given.as_json()


@pytest.mark.parametrize("name", ["sasl.jaas.config", "sasl.password", "ssl.key.password", "ssl.keystore.key",
                                  "sasl.oauthbearer.client.secret", "SASL.PASSWORD"])  # fmt: skip
def test_these_settings_are_secrets(name: str) -> None:
    assert is_secret(name)
    assert not is_secret("sasl.username")


def test_other_addresses_keep_the_settings(tmp_path: Path) -> None:
    found = access(tmp_path, login("PLAIN", "alice", "p")).at("proxy:1")
    assert found.client == {**access(tmp_path, login("PLAIN", "alice", "p")).client, "bootstrap.servers": "proxy:1"}


def test_a_file_is_read_by_javas_rules() -> None:
    text = "# c\n! c\n\na=1\nb : 2\nc 3\n d\t=\t4 \ne=x\\\n   y\\\\\nf\\=g=\\u00e4\\n\\z\nh\ni==\nj=a\\\r\n  b"
    assert parsed(text) == {
        "a": "1", "b": "2", "c": "3", "d": "4 ", "e": "xy\\", "f=g": "ä\nz", "h": "", "i": "=", "j": "ab",
    }  # fmt: skip


@pytest.mark.parametrize(
    "value", ["/home/josé/w", " a  b ", "\\", "a\\nb\\", "tab\tline\nend\r\f", "日本😀", "#!=:", ""]
)
def test_java_reads_a_written_value_as_it_was(value: str) -> None:
    line = line_of("log.dirs", value)
    assert line.isascii() and line.count("\n") == 1
    assert parsed(line) == {"log.dirs": value}


def test_the_characters_that_java_misreads_are_written_by_its_rules() -> None:
    assert line_of("a", " é😀\\b") == "a=\\ \\u00e9\\ud83d\\ude00\\\\b\n"


def test_a_character_that_programs_read_differently_is_refused(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("# Käse\nclient.id=K\\u00e4se\n", "utf-8")
    assert read_properties(tmp_path / "client.properties") == {"client.id": "Käse"}
    (tmp_path / "client.properties").write_text("client.id=Käse\n", "utf-8")
    with pytest.raises(AccessRefused, match=r"client\.id has a character that is not ASCII.*for example \\u00e4"):
        read_properties(tmp_path / "client.properties")


def test_a_space_at_the_end_of_a_line_is_no_part_of_a_value(tmp_path: Path) -> None:
    """Kafka trims every value too (ConfigDef.parseType)."""
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    tls = {"security.protocol": "SSL ", "ssl.truststore.type": "PEM ", "ssl.truststore.location": "ca.pem \t"}
    found = access(tmp_path, {**tls, "client.dns.lookup": "use_all_dns_ips ", "connections.max.idle.ms": "-1 "})
    assert found.client["ssl.ca.location"] == str(tmp_path / "ca.pem")
    assert found.client["client.dns.lookup"] == "use_all_dns_ips"
    assert found.unused == ("connections.max.idle.ms",)


@pytest.mark.parametrize("form", [{}, {"ssl.truststore.type": "JKS"}, {"ssl.truststore.type": "PKCS12"}])
def test_a_pem_file_of_another_type_only_needs_its_type(tmp_path: Path, form: dict[str, str]) -> None:
    (tmp_path / "ca.pem").write_text(f"# our authorities\n{CERTIFICATE}")
    with pytest.raises(AccessRefused, match=r"ca\.pem is in PEM form\. Set ssl\.truststore\.type=PEM$"):
        access(tmp_path, {**TLS, **form, "ssl.truststore.location": "ca.pem"})


def test_a_byte_order_mark_is_named(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("# mine\nclient.id=a\n", "utf-8-sig")
    with pytest.raises(AccessRefused, match=r"client\.properties begins with a byte order mark.*without it$"):
        read_properties(tmp_path / "client.properties")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessRefused, match=r"none\.properties cannot be read: No such file"):
        read_properties(tmp_path / "none.properties")
