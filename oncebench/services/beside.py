"""Servers that a sink needs beside Kafka: started for a run and reaped after it, or the user's own.

Promise: while a service is open, the environment variable that it names tells this process and its children where it
is; secrets travel in no other way. A server's own jars, where it is one in Java, are the bundle ``<service>-server``.
What can go wrong: see each service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from oncebench.services import postgres, pravega
from oncebench.services.maven import bundles
from oncebench.services.service import Service
from pipeline.sinks.registry import SINKS

# By the name with which a sink's kind asks for it.
SERVICES: Mapping[str, Service] = {"postgres": postgres.SERVICE, "pravega": pravega.SERVICE}


def needed_bundles() -> tuple[str, ...]:
    """The bundles of jars that a run here may need: all but those of servers whose sinks miss something else."""
    idle = {f"{service}-server" for kind in SINKS.values() if kind.missing for service in kind.services}
    return tuple(name for name in bundles() if name not in idle)


@contextmanager
def open_services(names: set[str], folder: Path) -> Iterator[dict[str, str]]:
    """Opens the services that are named, in the order of their names; gives those that are the user's own."""
    with ExitStack() as stack:
        opened = {name: stack.enter_context(SERVICES[name].open(folder)) for name in sorted(names)}
        yield {name: where for name, where in opened.items() if where is not None}
