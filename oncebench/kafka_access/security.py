"""Maps the security settings of Java clients to librdkafka's.

Every other form is made from librdkafka's settings.

Promise: a setting that is not understood is refused and never ignored. The broker's certificate is always checked, and
its host name too, unless `ssl.endpoint.identification.algorithm` is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from oncebench.kafka_access import jaas
from oncebench.kafka_access.refused import AccessRefused
from oncebench.kafka_access.stores import check_authorities, check_own_certificate, refuse_other_form

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
HOST_CHECK = "ssl.endpoint.identification.algorithm"
LOCATIONS = ("ssl.truststore.location", "ssl.keystore.location")
# Java's login handlers for a token endpoint. Our clients have their own, so the name adds nothing.
_TOKEN_HANDLERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}OAuthBearerLoginCallbackHandler" for name in ("", "secured.")
)
_KNOWN = frozenset(
    {
        "security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.login.callback.handler.class",
        "sasl.oauthbearer.token.endpoint.url", "ssl.truststore.type", "ssl.truststore.location", "ssl.keystore.type",
        "ssl.keystore.location", "ssl.key.password", HOST_CHECK,
    }
)  # fmt: skip
_OF_CLIENT = "sasl.oauthbearer.client.credentials.client."
# Settings of Java clients that another one replaces here, and which.
_INSTEAD = {
    "ssl.truststore.certificates": "ssl.truststore.location, the path of a file",
    "ssl.keystore.key": "ssl.keystore.location, the path of a file",
    "ssl.keystore.certificate.chain": "ssl.keystore.location, the path of a file",
    f"{_OF_CLIENT}id": "sasl.jaas.config, with the option clientId",
    f"{_OF_CLIENT}secret": "sasl.jaas.config, with the option clientSecret",
    "sasl.oauthbearer.scope": "sasl.jaas.config, with the option scope",
    "enable.ssl.certificate.verification": "ssl.truststore.location: the broker's certificate is always checked",
}
# Parts of the names of settings that are about security, for example in enable.ssl.certificate.verification.
_ABOUT_SECURITY = frozenset({"security", "ssl", "sasl"})
# Settings of librdkafka for the connection to a token endpoint.
_OF_ENDPOINT = "https."
# Passwords of stores in other forms; a PEM store has none.
_STORE_PASSWORDS = ("ssl.truststore.password", "ssl.keystore.password")


def is_security(name: str) -> bool:
    """Whether a setting is about the security of connections."""
    return name.startswith(_OF_ENDPOINT) or not _ABOUT_SECURITY.isdisjoint(name.split("."))


def to_librdkafka(settings: Mapping[str, str], folder: Path, where: str) -> dict[str, str]:
    """Returns librdkafka's settings for the security settings of a Java client.

    The result is empty for a plaintext connection.

    Args:
        settings: those for which `is_security` is true.
        folder: relative paths of stores begin here.
        where: the file or option that has the settings, for messages.

    Raises:
        AccessRefused: a setting is wrong, missing or not supported.
    """
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise AccessRefused(f"{where}: security.protocol is none of {', '.join(PROTOCOLS)}. Correct it")
    uses = {"sasl": protocol.startswith("SASL"), "ssl": protocol.endswith("SSL")}
    for name in sorted(settings):
        kind = name.partition(".")[0]
        if not uses.get(kind, True):
            raise AccessRefused(
                f"{where}: {name} has no effect with security.protocol {protocol}. Correct security.protocol, or "
                f"remove {name}"
            )
        if name in _INSTEAD:
            raise AccessRefused(f"{where}: {name} is not supported. Use {_INSTEAD[name]}")
        if name not in _KNOWN and name not in _STORE_PASSWORDS:
            raise AccessRefused(f"{where}: {name} is not supported. Remove it, or use another listener of the cluster")
    found = {} if protocol == "PLAINTEXT" else {"security.protocol": protocol}
    if uses["ssl"]:
        found |= _tls(settings, folder, where)
    if uses["sasl"]:
        found |= _login(settings, where)
    return found


def _tls(settings: Mapping[str, str], folder: Path, where: str) -> dict[str, str]:
    algorithm = settings.get(HOST_CHECK, "https").strip().lower()
    if algorithm not in ("https", ""):
        raise AccessRefused(
            f"{where}: {HOST_CHECK} is neither https nor empty. Remove it, so that the broker's host name is checked"
        )
    found = {HOST_CHECK: algorithm or "none"}
    authorities, own = (_store(settings, kind, folder, where) for kind in ("truststore", "keystore"))
    for name in _STORE_PASSWORDS:
        if name in settings:
            raise AccessRefused(f"{where}: {name} has no effect, because a PEM store has no password. Remove it")
    if authorities is not None:
        check_authorities(authorities, where)
        found["ssl.ca.location"] = str(authorities)
    if own is not None:
        check_own_certificate(own, "ssl.key.password" in settings, where)
        found |= {"ssl.certificate.location": str(own), "ssl.key.location": str(own)}
        if "ssl.key.password" in settings:
            found["ssl.key.password"] = settings["ssl.key.password"]
    return found


def _store(settings: Mapping[str, str], kind: str, folder: Path, where: str) -> Path | None:
    location = settings.get(f"ssl.{kind}.location")
    if not location:
        return None
    path = folder / location
    refuse_other_form(kind, path, settings.get(f"ssl.{kind}.type", "JKS"), where)
    return path


def _login(settings: Mapping[str, str], where: str) -> dict[str, str]:
    mechanism = settings.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in jaas.MODULES:
        default = "" if "sasl.mechanism" in settings else ", Kafka's default,"
        raise AccessRefused(
            f"{where}: sasl.mechanism {mechanism}{default} is not supported. Set sasl.mechanism to one that the "
            f"cluster has: {', '.join(jaas.MODULES)}"
        )
    if "sasl.jaas.config" not in settings:
        raise AccessRefused(f"{where}: sasl.jaas.config is missing. It holds the user and the password of {mechanism}")
    options = jaas.options_of(settings["sasl.jaas.config"], mechanism, where)
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, **_token(settings, options, where)}
    _check(options, ("username", "password"), (), where)
    return {
        "sasl.mechanism": mechanism, "sasl.username": options["username"], "sasl.password": options["password"],
    }  # fmt: skip


def _token(settings: Mapping[str, str], options: Mapping[str, str], where: str) -> dict[str, str]:
    handler = settings.get("sasl.login.callback.handler.class", _TOKEN_HANDLERS[0])
    if handler not in _TOKEN_HANDLERS:
        raise AccessRefused(
            f"{where}: sasl.login.callback.handler.class is not supported. Tokens come from an endpoint: remove it, "
            "and set sasl.oauthbearer.token.endpoint.url"
        )
    url = settings.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url.startswith(("http://", "https://")):
        raise AccessRefused(
            f"{where}: sasl.oauthbearer.token.endpoint.url must be the https address of a token endpoint. Set it"
        )
    if "@" in urlsplit(url).netloc:  # the address is in messages, and in the command line of a JVM
        raise AccessRefused(
            f"{where}: sasl.oauthbearer.token.endpoint.url contains a user or a password. Write them as clientId and "
            "clientSecret into sasl.jaas.config"
        )
    _check(options, ("clientId", "clientSecret"), ("scope",), where)
    scope = {"sasl.oauthbearer.scope": options["scope"]} if options.get("scope") else {}
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": options["clientId"],
        "sasl.oauthbearer.client.secret": options["clientSecret"],
        "sasl.oauthbearer.token.endpoint.url": url,
        **scope,
    }


def _check(options: Mapping[str, str], needed: tuple[str, ...], more: tuple[str, ...], where: str) -> None:
    for name in needed:
        if name not in options:
            raise AccessRefused(
                f"{where}: sasl.jaas.config has no {name}. Add it. If the setting has several lines, each but the last "
                "must end with \\"
            )
        if not options[name]:
            raise AccessRefused(
                f"{where}: the {name} in sasl.jaas.config is empty. Correct it, or the environment variable that it "
                "names"
            )
    for name in options:
        if name not in needed + more:
            raise AccessRefused(
                f"{where}: the option {name} in sasl.jaas.config is not supported. Remove it, or use another login"
            )
