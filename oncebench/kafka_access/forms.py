"""Makes the other forms of librdkafka's settings.

The other forms are kafka-python's arguments, Java's properties and Spark's options.

Promise: pure functions. For a plaintext connection they return the addresses and nothing else.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from oncebench.kafka_access import jaas
from oncebench.kafka_access.security import HOST_CHECK
from oncebench.kafka_access.tokens import TokenEndpoint

# librdkafka's settings that this module maps. All others have the same name in Java, or none.
_MAPPED = ("sasl.", "ssl.")
_TOKEN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"  # noqa: S105


def to_kafka_python(client: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of kafka-python's clients: addresses and security."""
    arguments: dict[str, Any] = {"bootstrap_servers": client["bootstrap.servers"]}
    protocol = client.get("security.protocol", "PLAINTEXT")
    if protocol == "PLAINTEXT":
        return arguments
    arguments["security_protocol"] = protocol
    if protocol.endswith("SSL"):
        arguments |= {
            "ssl_check_hostname": _checks_host(client),
            "ssl_cafile": client.get("ssl.ca.location"),
            "ssl_certfile": client.get("ssl.certificate.location"),
            "ssl_keyfile": client.get("ssl.key.location"),
            "ssl_password": client.get("ssl.key.password"),
        }
    if protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = client["sasl.mechanism"]
        if client["sasl.mechanism"] == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = TokenEndpoint.of(client)
        else:
            arguments |= {
                "sasl_plain_username": client["sasl.username"],
                "sasl_plain_password": client["sasl.password"],
            }
    return arguments


def to_java(client: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings of Java clients."""
    found = {name: str(value) for name, value in client.items() if not name.startswith(_MAPPED)}
    protocol = client.get("security.protocol", "PLAINTEXT")
    if protocol.endswith("SSL"):
        found[HOST_CHECK] = "https" if _checks_host(client) else ""
        for store, name in (("ssl.truststore", "ssl.ca.location"), ("ssl.keystore", "ssl.certificate.location")):
            if name in client:
                found |= {f"{store}.type": "PEM", f"{store}.location": client[name]}
        if "ssl.key.password" in client:
            found["ssl.key.password"] = client["ssl.key.password"]
    if protocol.startswith("SASL"):
        found |= _login(client)
    return found


def to_spark(client: Mapping[str, Any]) -> dict[str, str]:
    """Returns the options of Spark's Kafka source and sink."""
    return {f"kafka.{name}": value for name, value in to_java(client).items()}


def jvm_options(client: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the JVM options that these settings need.

    Kafka's clients fetch tokens from named addresses only, so an option names the address.
    """
    url = client.get("sasl.oauthbearer.token.endpoint.url")
    return () if url is None else (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}",)


def tls_context(client: Mapping[str, Any]) -> ssl.SSLContext:
    """Returns the context of a TLS connection with the same checks.

    From Python 3.13 on, `ssl.create_default_context` refuses certificates that all clients of Kafka accept
    (VERIFY_X509_STRICT), and accepts chains that librdkafka refuses (VERIFY_X509_PARTIAL_CHAIN).

    Raises:
        ssl.SSLError, OSError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if client.get("ssl.ca.location"):
        context.load_verify_locations(client["ssl.ca.location"])
    else:
        context.load_default_certs()
    context.check_hostname = _checks_host(client)
    if client.get("ssl.certificate.location"):
        context.load_cert_chain(
            client["ssl.certificate.location"], client.get("ssl.key.location"), client.get("ssl.key.password")
        )
    return context


def weaknesses(client: Mapping[str, Any]) -> list[str]:
    """Returns what a user has switched off, or left unencrypted, as sentences for a report."""
    found = []
    if client.get("security.protocol") == "SASL_PLAINTEXT":
        found.append("connections to Kafka are not encrypted (SASL_PLAINTEXT)")
    if client.get("security.protocol", "").endswith("SSL") and not _checks_host(client):
        found.append(f"the host names of Kafka's brokers are not checked ({HOST_CHECK} is empty)")
    if client.get("sasl.oauthbearer.token.endpoint.url", "").startswith("http://"):
        found.append("the secret of the tokens' client is not encrypted on its way to the token endpoint (http)")
    return found


def described(client: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the field `security` of a report, without a secret.

    Returns nothing for a plaintext connection.
    """
    if "security.protocol" not in client:
        return {}
    mechanism = {"mechanism": client["sasl.mechanism"]} if "sasl.mechanism" in client else {}
    certificate = "ssl.certificate.location" in client
    found = {"protocol": client["security.protocol"], **mechanism, "client_certificate": certificate}
    return {"security": {**found, "weaknesses": weaknesses(client)}}


def _checks_host(client: Mapping[str, Any]) -> bool:
    return bool(client.get(HOST_CHECK, "https") != "none")


def _login(client: Mapping[str, Any]) -> dict[str, str]:
    mechanism = client["sasl.mechanism"]
    if mechanism != "OAUTHBEARER":
        options = {"username": client["sasl.username"], "password": client["sasl.password"]}
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas.config_of(mechanism, options)}
    options = {
        "clientId": client["sasl.oauthbearer.client.id"],
        "clientSecret": client["sasl.oauthbearer.client.secret"],
    }
    if "sasl.oauthbearer.scope" in client:
        options["scope"] = client["sasl.oauthbearer.scope"]
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas.config_of(mechanism, options),
        "sasl.oauthbearer.token.endpoint.url": client["sasl.oauthbearer.token.endpoint.url"],
        "sasl.login.callback.handler.class": _TOKEN_HANDLER,
    }
