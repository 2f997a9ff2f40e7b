"""The links of a run: proxies between the pipeline and its servers, there only where a fault of the run acts on one.

Promise: generator, observer and audit always reach the servers themselves. The pipeline does so too in a run without
such a fault; otherwise it is told the proxy's address, and Kafka's proxied listener tells it no other. What can go
wrong: nothing of its own; a server that is not ours has no link, and such a fault was refused before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oncebench.delivery.failpoints import parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.faults.link import link_to
from oncebench.faults.server import KAFKA, POSTGRES
from oncebench.lab.lab import Lab
from oncebench.processes.ports import LOOPBACK
from oncebench.scenario.cell import Cell
from oncebench.servers.proxy.framing import PostgresFraming
from oncebench.servers.proxy.tcp import Proxy
from oncebench.sinks.postgres.connection import VARIABLE


@dataclass(frozen=True)
class Links:
    """What the pipeline of a run is told, and the proxies by what a nemesis calls them.

    Attributes:
        bootstrap_servers: where the pipeline finds Kafka.
        environment: what else its environment says.
        proxies: those that are between.
    """

    bootstrap_servers: str
    environment: Mapping[str, str] = field(default_factory=dict)
    proxies: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def open_links(cell: Cell, lab: Lab) -> Iterator[Links]:
    """The links that the faults of a cell act on, open until the end of the context."""
    nemeses = [FAULTS[parse_fault(fault).action] for fault in cell.faults]
    wanted = {nemesis.breaks for nemesis in nemeses if nemesis.on_link}
    servers, environment, proxies = lab.kafka.bootstrap_servers, {}, {}
    with ExitStack() as stack:
        if KAFKA in wanted:
            assert lab.link is not None, "a broker of ours has one"
            proxy, port = lab.link
            stack.enter_context(proxy.open(port))
            servers, proxies[link_to(KAFKA)] = f"{LOOPBACK}:{proxy.port}", proxy
        if POSTGRES in wanted:
            dsn = lab.servers[POSTGRES].dsn
            proxy = stack.enter_context(closing(Proxy(PostgresFraming())))
            stack.enter_context(proxy.open(int(conninfo_to_dict(dsn)["port"] or 0)))
            environment[VARIABLE] = make_conninfo(dsn, host=LOOPBACK, port=proxy.port)
            proxies[link_to(POSTGRES)] = proxy
        yield Links(servers, environment, proxies)
