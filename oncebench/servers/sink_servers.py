"""Servers that a sink needs beside Kafka: started for a run and reaped after it, or the user's own.

Promise: while a service is open, the environment variable that it names tells this process and its children where it
is; secrets travel in no other way. A server's own jars, where it is one in Java, are the bundle ``<service>-server``.
What can go wrong: see each service.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from oncebench.downloads.maven import bundles
from oncebench.servers import postgres, pravega
from oncebench.servers.service import Opened, Service
from oncebench.sinks.registry import suite_sinks

# By the name with which a sink's kind asks for it.
SERVICES: Mapping[str, Service] = {"postgres": postgres.SERVICE, "pravega": pravega.SERVICE}


def needed_bundles() -> tuple[str, ...]:
    """The bundles of jars that a run here may need: all but those of servers whose sinks miss something else."""
    idle = {
        f"{service}-server" for sink in suite_sinks().values() if sink.kind.missing for service in sink.traits.services
    }
    return tuple(name for name in bundles() if name not in idle)


@contextmanager
def open_services(names: set[str], folder: Path) -> Iterator[dict[str, Opened]]:
    """Opens the services that are named, in the order of their names."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(SERVICES[name].open(folder)) for name in sorted(names)}


def ours(bootstrap_servers: str | None) -> frozenset[str]:
    """The servers, Kafka among them, that the suite would start now, for whoever needs them."""
    kafka = set() if bootstrap_servers else {"kafka"}
    return frozenset(kafka | {name for name, service in SERVICES.items() if not os.environ.get(service.variable)})
