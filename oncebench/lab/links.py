"""Opens proxies between the pipeline and its servers, if a fault acts on a link.

Promise: generator, observer and audit always connect to the servers directly. The pipeline does too, unless the run has
such a fault. Then the pipeline gets the proxy's address, and Kafka's proxied listener advertises no other address. A
server that the suite did not start has no link; a fault on such a link is refused before the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oncebench.faults.catalogue import kinds
from oncebench.faults.link import link_to
from oncebench.faults.server import KAFKA, POSTGRES
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.lab import Lab
from oncebench.processes.ports import LOOPBACK
from oncebench.scenario.cell import Cell
from oncebench.servers.proxy.framing import PostgresFraming
from oncebench.servers.proxy.tcp import Proxy
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.sinks.registry import suite_sinks


@dataclass(frozen=True)
class Links:
    """The addresses that a pipeline uses, and the open proxies.

    Attributes:
        kafka: Kafka as the pipeline reaches it.
        environment: further environment variables of the pipeline.
        proxies: by the link's name in a fault (`link_to`).
    """

    kafka: KafkaAccess
    environment: Mapping[str, str] = field(default_factory=dict)
    proxies: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def open_links(cell: Cell, lab: Lab) -> Iterator[Links]:
    """Opens the links that the faults and outages of a cell act on, until the context ends."""
    wanted = {kind.breaks for kind in kinds(cell.faults) if kind.on_link}
    if cell.outage_s and lab.link is not None and suite_sinks()[cell.sink].transactional_ids is not None:
        wanted.add(KAFKA)
    kafka, environment, proxies = lab.kafka.access, {}, {}
    with ExitStack() as stack:
        if KAFKA in wanted:
            assert lab.link is not None, "every broker that the suite starts has a link"
            proxy, port = lab.link
            stack.enter_context(proxy.open(port))
            kafka, proxies[link_to(KAFKA)] = kafka.at(f"{LOOPBACK}:{proxy.port}"), proxy
        if POSTGRES in wanted:
            dsn = lab.servers[POSTGRES].dsn
            proxy = stack.enter_context(closing(Proxy(PostgresFraming())))
            stack.enter_context(proxy.open(int(conninfo_to_dict(dsn)["port"] or 0)))
            environment[VARIABLE] = make_conninfo(dsn, host=LOOPBACK, port=proxy.port)
            proxies[link_to(POSTGRES)] = proxy
        yield Links(kafka, environment, proxies)
