"""Servers that a sink needs besides Kafka: started for a run, or the user's own.

Promise: while a service is open, its environment variable has its address for this process and its children. Secrets
are passed only in that variable. The jars of a Java server are the bundle ``<service>-server``. A package of a sink
lists its services in `SERVICES` of its `server.py`; our services are listed here.

Failure modes: see each service. A package whose services cannot be used is left out (`oncebench.sinks.packages`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from oncebench.downloads import async_profiler
from oncebench.downloads.maven import bundles
from oncebench.errors import UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.servers import postgres
from oncebench.servers.service import Opened, Service
from oncebench.sinks.packages import LEFT_OUT, SinkPackage, named, usable
from oncebench.sinks.registry import suite_sinks

OURS: Mapping[str, Service] = {postgres.SERVICE.name: postgres.SERVICE}

PEER = "peer-"  # how the bundle of a peer is called


@cache
def services() -> Mapping[str, Service]:
    """Returns every service, by the name that a sink uses for it."""
    found = dict(OURS)
    for _, theirs in usable("the servers", ("kafka", *OURS), _services_in):
        found |= theirs
    return found


def _services_in(package: SinkPackage) -> Mapping[str, Service]:
    return named(package.members("SERVICES", ("server",)), Service, lambda service: service.name)


def service(name: str) -> Service:
    """Returns the service of that name.

    Raises:
        UserError: there is none.
    """
    if name not in services():
        reasons = "".join(f" {why}" for why in LEFT_OUT.values())
        raise UserError(f"a sink needs the server {name!r}, which its package does not list in SERVICES.{reasons}")
    return services()[name]


def needed_bundles() -> tuple[str, ...]:
    """The bundles of jars that runs on this machine may need.

    The server of a sink that cannot run here is left out. So are peers: each fetches its jars at its first run. The
    profiler's jar is fetched when it is used.
    """
    idle = {"kafka-tools", async_profiler.BUNDLE} | {  # only `tools.generator_speed` runs Kafka's tools
        f"{service}-server" for sink in suite_sinks().values() if sink.kind.missing for service in sink.traits.services
    }
    return tuple(name for name in bundles() if name not in idle and not name.startswith(PEER))


@contextmanager
def open_services(names: set[str], folder: Path) -> Iterator[dict[str, Opened]]:
    """Opens the named services, in the order of their names."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(service(name).open(folder)) for name in sorted(names)}


def ours(theirs: KafkaAccess | None) -> frozenset[str]:
    """The servers, including Kafka, that the suite would start for a run that needs them.

    Args:
        theirs: the user's own Kafka.
    """
    kafka = set() if theirs else {"kafka"}
    return frozenset(kafka | {name for name, each in services().items() if not os.environ.get(each.variable)})


def named_servers() -> dict[str, str]:
    """Returns the server addresses that the environment names, by service.

    While no service is open, these are the user's own servers.
    """
    return {name: where for name, each in services().items() if (where := os.environ.get(each.variable))}


def without_secrets(addresses: Mapping[str, str], sink: str) -> dict[str, str]:
    """Returns the addresses that a sink uses, without their secrets.

    The keys are the variables that name each server.

    Args:
        addresses: by service.
    """
    used = [services()[name] for name in suite_sinks()[sink].traits.services if name in addresses]
    return {each.variable: each.without_secrets(addresses[each.name]) for each in used}
