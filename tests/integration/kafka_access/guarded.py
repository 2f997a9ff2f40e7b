"""A broker with logins and authorisation: a user may do only what was granted.

The plaintext listener belongs to the test itself, which may do everything. USERS of the login listener have no rights
until `granted`. Each case takes a new user, so no case waits for a right to be taken away.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from oncebench.downloads.java import find_java
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, TRANSACTIONAL_ID, Resource, Right
from oncebench.kafka_access.jaas import MODULES
from oncebench.lab.lab import QUICK_ABORTS
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.servers.kafka.class_archive import start_files
from oncebench.servers.kafka.settings import CLIENTS, CONTROLLER, BrokerSettings
from tests.waiting import wait_for

LOGIN = "LOGIN"
USERS = 120  # one for each case
PASSWORD = "secret-of-a-test"
LIMIT_S = 30.0
_OPERATIONS = {
    "Read": AclOperation.READ, "Write": AclOperation.WRITE, "Create": AclOperation.CREATE, "Alter": AclOperation.ALTER,
    "Describe": AclOperation.DESCRIBE, "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}  # fmt: skip
KINDS = {
    TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP, CLUSTER: ResourceType.BROKER,
    TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}  # fmt: skip
# A broker with these settings forbids everything that was not granted; the plaintext listener may do everything.
AUTHORISATION = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_EVERY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


class Guarded:
    """The running broker."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self._numbers = count()

    @property
    def servers(self) -> str:
        """The address that wants a login."""
        return f"{LOOPBACK}:{self.broker.ports[LOGIN]}"

    def new_user(self) -> str:
        """A user without any right."""
        number = next(self._numbers)
        assert number < USERS, "raise USERS"
        return f"u{number}"

    def settings(self, user: str) -> dict[str, str]:
        """A client's settings of this user."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULES["PLAIN"]} required username="{user}" password="{PASSWORD}";',
        }

    def access(self, user: str) -> KafkaAccess:
        """The user's way to the broker."""
        return KafkaAccess(self.servers, "", self.settings(user))

    def file(self, folder: Path, user: str) -> Path:
        """A file of the user's settings."""
        path = folder / f"{user}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.settings(user).items()))
        return path

    def run(self, printed: str) -> None:
        """Does what the printed commands say, as kafka-acls.sh does."""
        self._make([each for line in printed.splitlines() if line and line[0] != "#" for each in bindings(line)])

    def grant(self, user: str, rights: Iterable[Right]) -> None:
        """Grants rights, and waits until the broker applies them."""
        self._make([_binding(user, right) for right in rights])

    def _make(self, wanted: Collection[AclBinding]) -> None:
        admin = self.broker.admin()
        for made in admin.create_acls(wanted).values() if wanted else ():
            made.result(LIMIT_S)
        wait_for("the broker to allow it", lambda: set(wanted) <= self.entries())

    def entries(self) -> set[AclBinding]:
        """The entries that the broker applies."""
        admin = self.broker.admin()
        return set(admin.describe_acls(_EVERY).result(LIMIT_S))


def bindings(command: str) -> list[AclBinding]:
    """The entries that a kafka-acls.sh command makes."""
    program, *words = shlex.split(command)
    assert program == "kafka-acls.sh"
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for option in ("bootstrap-server", "allow-principal", *KINDS):
        parser.add_argument(f"--{option}", action="store_true" if option == CLUSTER else "store")
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--resource-pattern-type", default="literal")
    given = vars(parser.parse_args(words))
    (kind,) = (kind for kind in KINDS if given[kind.replace("-", "_")])
    name = CLUSTER_NAME if kind == CLUSTER else given[kind.replace("-", "_")]
    user = given["allow_principal"].removeprefix("User:")
    on = Resource(kind, name, given["resource_pattern_type"])
    return [_binding(user, Right(operation, on, "")) for operation in given["operation"]]


def _binding(user: str, right: Right) -> AclBinding:
    pattern = ResourcePatternType[right.on.pattern.upper()]
    return AclBinding(KINDS[right.on.kind], right.on.name, pattern, f"User:{user}", "*",
                      _OPERATIONS[right.operation], AclPermissionType.ALLOW)  # fmt: skip


@contextmanager
def guarded_kafka(folder: Path) -> Iterator[Guarded]:
    """Starts the broker."""
    ports = dict(zip((CLIENTS, CONTROLLER, LOGIN), free_ports(3), strict=True))
    java = find_java()
    users = " ".join(f'user_u{number}="{PASSWORD}"' for number in range(USERS))
    login = f"listener.name.{LOGIN.lower()}"
    extra = {
        **QUICK_ABORTS,
        # A test leaves a transaction open behind its coordinator's back.
        "transaction.partition.verification.enable": "false",
        **AUTHORISATION,
        "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{CONTROLLER}:PLAINTEXT,{LOGIN}:SASL_PLAINTEXT",
        f"{login}.sasl.enabled.mechanisms": "PLAIN",
        f"{login}.plain.sasl.jaas.config": f"{MODULES['PLAIN']} required {users};",
    }
    settings = BrokerSettings(folder / "kafka" / "data", ports, extra=extra)
    with KafkaBroker(folder, settings, java, start_files(java), 512) as broker:
        broker.start()
        yield Guarded(broker)
