"""Rights of a Kafka user (ACLs), and the commands of Kafka's own tool that grant them.

Source: kafka-acls.sh of Kafka 4.3.1 (org.apache.kafka.tools.AclCommand).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER = "topic", "group", "transactional-id", "cluster"
LITERAL, PREFIXED = "literal", "prefixed"
# The only name that Kafka has for this resource (Resource.CLUSTER_NAME).
CLUSTER_NAME = "kafka-cluster"


@dataclass(frozen=True)
class Resource:
    """What a right is on.

    Attributes:
        kind: topic, group, transactional-id or cluster, as the tool's options are called.
        name: of the resource, or the beginning of names.
        pattern: literal, or prefixed for every name that begins with `name`.
    """

    kind: str
    name: str
    pattern: str = LITERAL

    @property
    def options(self) -> tuple[str, ...]:
        """The tool's options that name it."""
        if self.kind == CLUSTER:
            return ("--cluster",)
        prefixed = ("--resource-pattern-type", PREFIXED) if self.pattern == PREFIXED else ()
        return (f"--{self.kind}", self.name, *prefixed)


@dataclass(frozen=True)
class Right:
    """One right.

    Attributes:
        operation: as Kafka names it: Read, Write, Create, Describe, DescribeConfigs or Alter.
        on: the resource.
        why: what needs it.
        without: what happens without it, if the program then still works; empty: it is refused.
    """

    operation: str
    on: Resource
    why: str
    without: str = ""


def advice(operations: Iterable[str], on: Resource) -> str:
    """Returns the advice of an error message about missing rights on a resource.

    The advice has no full stop at its end.
    """
    words = list(operations)
    rights = (Right(word, on, "") for word in words)
    return f"Grant {' and '.join(words)} on it: {grant(rights, 'User:NAME', 'HOST:PORT')}"


def grant(right: Iterable[Right], principal: str, servers: str, command_config: str = "") -> str:
    """Returns the command that grants rights on one resource.

    Args:
        right: the rights; all are on the same resource.
        principal: the user, for example User:orders.
        servers: addresses of the cluster.
        command_config: the tool's file of settings, if the cluster needs a login.
    """
    rights = list(right)
    config = ("--command-config", command_config) if command_config else ()
    operations = [word for each in rights for word in ("--operation", each.operation)]
    words = ("--bootstrap-server", servers, *config, "--add", "--allow-principal", principal)
    return shlex.join(("kafka-acls.sh", *words, *operations, *rights[0].on.options))
