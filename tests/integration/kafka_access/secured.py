"""A broker with TLS and logins.

Each listener has one defect or none, so one broker serves every case:

- LOGIN: TLS and a login (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512);
- MUTUAL: TLS with a client's certificate;
- BOTH: a login and a client's certificate;
- TOKENS: TLS and an OAuth token;
- EXPIRED, ELSEWHERE: as LOGIN, with a certificate that has expired, or is for another host.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from oncebench.downloads.java import find_java
from oncebench.kafka_access.jaas import MODULES
from oncebench.lab.lab import QUICK_ABORTS
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.servers.kafka.class_archive import StartFiles, start_files
from oncebench.servers.kafka.settings import CLIENTS, CONTROLLER, BrokerSettings
from tests.authority import Authority
from tests.integration.kafka_access.token_server import TokenServer, token_server

LOGIN, MUTUAL, BOTH, TOKENS, EXPIRED, ELSEWHERE = "LOGIN", "MUTUAL", "BOTH", "TOKENS", "EXPIRED", "ELSEWHERE"
LISTENERS = (LOGIN, MUTUAL, BOTH, TOKENS, EXPIRED, ELSEWHERE)
USER = "alice"
# A text that is nowhere else, not even in other test runs on this machine, so a search for it finds every leak.
PASSWORD = f"canary-{uuid.uuid4().hex[:12]}"


class Secured:
    """The running broker, and the settings of clients.

    Attributes:
        broker: its other listener has neither TLS nor login, for the test itself.
        tokens: the endpoint for TOKENS.
    """

    def __init__(self, broker: KafkaBroker, authority: Authority, tokens: TokenServer, folder: Path) -> None:
        self.broker, self.authority, self.tokens, self._folder = broker, authority, tokens, folder

    def servers(self, listener: str = LOGIN) -> str:
        """The address of a listener."""
        return f"{LOOPBACK}:{self.broker.ports[listener]}"

    def settings(self, mechanism: str = "SCRAM-SHA-256", password: str = PASSWORD, **more: str) -> dict[str, str]:
        """A client's settings for LOGIN; `more` has `_` in place of `.`."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{MODULES[mechanism]} required username="{USER}" password="{password}";',
            **self.trust(),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def token(self, secret: str = PASSWORD) -> dict[str, str]:
        """A client's settings for TOKENS."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{MODULES["OAUTHBEARER"]} required clientId="{USER}" clientSecret="{secret}" '
            'scope="kafka";',
            "sasl.oauthbearer.token.endpoint.url": self.tokens.token_url,
            **self.trust(),
        }

    def trust(self, authority: Authority | None = None) -> dict[str, str]:
        """The settings of a client that trusts an authority."""
        trusted = (authority or self.authority).certificate
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}

    def own(self, store: Path) -> dict[str, str]:
        """The settings of a client with a certificate."""
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}

    def file(self, settings: Mapping[str, str], name: str = "client.properties") -> Path:
        """A file of settings."""
        path = self._folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


@contextmanager
def secured_kafka(folder: Path, **more: str) -> Iterator[Secured]:
    """Starts the broker, and makes the user of its logins.

    `more` are settings of the broker, with `_` for `.`.
    """
    authority = Authority(folder / "authority")
    names = (CLIENTS, CONTROLLER, *LISTENERS)
    *free, tokens_port = free_ports(len(names) + 1)
    ports = dict(zip(names, free, strict=True))
    java = find_java()
    with token_server(tokens_port, folder, USER, PASSWORD) as tokens:
        own = {name.replace("_", "."): value for name, value in more.items()}
        extra = {**QUICK_ABORTS, **_security(authority, tokens), **own}
        settings = BrokerSettings(folder / "kafka" / "data", ports, extra=extra)
        files = _Files(start_files(java).folder, tokens.keys_url)
        with KafkaBroker(folder, settings, java, files, 512) as broker:
            broker.start()
            make_user(broker, USER)
            yield Secured(broker, authority, tokens, folder)


def make_user(broker: KafkaBroker, name: str) -> None:
    """Makes a user of the SCRAM logins, with the password of all of them."""
    admin = broker.admin()
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # one in each request
        user = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([user])[name].result(30)


@dataclass(frozen=True)
class _Files(StartFiles):
    """Allows the broker to fetch keys from an address, which Kafka requires of a JVM."""

    keys_url: str

    @property
    def flags(self) -> tuple[str, ...]:
        return (*super().flags, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.keys_url}")


def _security(authority: Authority, tokens: TokenServer) -> dict[str, str]:
    protocols = {CLIENTS: "PLAINTEXT", CONTROLLER: "PLAINTEXT"} | dict.fromkeys(LISTENERS, "SASL_SSL") | {MUTUAL: "SSL"}
    stores = dict.fromkeys(LISTENERS, authority.signed("broker"))
    stores |= {EXPIRED: authority.signed("expired", days=-1), ELSEWHERE: authority.signed("other", "DNS:elsewhere")}
    found = {"listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())}
    for listener in LISTENERS:
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(stores[listener]), "num.network.threads": "1"}
        if listener in (MUTUAL, BOTH):
            trusted = str(authority.certificate)
            own |= {"ssl.client.auth": "required", "ssl.truststore.type": "PEM", "ssl.truststore.location": trusted}
        if protocols[listener].startswith("SASL"):
            own |= _tokens(tokens) if listener == TOKENS else _logins()
        found |= {f"listener.name.{listener.lower()}.{name}": value for name, value in own.items()}
    return found


def _logins() -> dict[str, str]:
    plain = f'{MODULES["PLAIN"]} required user_{USER}="{PASSWORD}";'
    scram = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    modules = {f"{name.lower()}.sasl.jaas.config": f"{MODULES[name]} required;" for name in scram}
    return {"sasl.enabled.mechanisms": ",".join(("PLAIN", *scram)), "plain.sasl.jaas.config": plain, **modules}


def _tokens(tokens: TokenServer) -> dict[str, str]:
    package = "org.apache.kafka.common.security.oauthbearer"
    own = {
        "jaas.config": f"{MODULES['OAUTHBEARER']} required;",
        "server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
        "oauthbearer.jwks.endpoint.url": tokens.keys_url,
    }
    found = {f"oauthbearer.sasl.{name}": value for name, value in own.items()}
    return {"sasl.enabled.mechanisms": "OAUTHBEARER", **found}
