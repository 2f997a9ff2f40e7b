"""Files of settings and certificates for tests.

The certificates are none, and only their form is looked at.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.jaas import MODULES

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"
LOCKED_KEY = KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")
PBES2_KEY = LOCKED_KEY.replace("AA==", b64encode(bytes.fromhex("3006092a864886f70d01050d")).decode())


def properties(settings: Mapping[str, str]) -> str:
    """The text of a properties file."""
    return "".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in settings.items())


def access(folder: Path, settings: Mapping[str, str], servers: str = "b:1") -> KafkaAccess:
    """The Kafka at `servers` with a file of these settings."""
    path = folder / "client.properties"
    path.write_text(properties(settings))
    return KafkaAccess(servers, str(path))


def login(mechanism: str, user: str, password: str) -> dict[str, str]:
    """The settings of a login over TLS."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{MODULES[mechanism]} required username="{user}" password="{quoted}";',
    }  # fmt: skip
