"""Facts about Spark masters: whether executors run elsewhere, and how they reach the driver.

Promise: the address of the driver is found without a packet to the master, from this machine's routing table.
"""

from __future__ import annotations

import re
import socket
from contextlib import closing, suppress
from ipaddress import ip_address

from oncebench.delivery.errors import RefusedStart

# Spark's own masters (`local`, `local[N]`, `local-cluster[..]`) run all executors on this machine.
_LOCAL = "local"
_STANDALONE = "spark://"
EVERYWHERE = "0.0.0.0"  # noqa: S104  a user who names another address for executors asks for it
_LAST_PORT = 65535
CONNECT_LIMIT_S = 5.0  # a master in the same network answers in milliseconds
_HOST = re.compile(r"\[(?P<v6>[^\]]+)\]:(?P<v6_port>\d+)|(?P<host>[^:/,\[\]]+):(?P<port>\d+)")


def is_local(master: str) -> bool:
    """Whether all executors run on this machine, with files and variables of the driver."""
    return master.startswith(_LOCAL)


def is_standalone(master: str) -> bool:
    """Whether the master is Spark's own one, in a process of its own."""
    return master.startswith(_STANDALONE)


def addresses(master: str) -> tuple[tuple[str, int], ...]:
    """Returns host and port of each master of a standalone cluster.

    The text has the form `spark://one:7077,two:7077`.

    Raises:
        RefusedStart: the text has another form.
    """
    found = [_HOST.fullmatch(part) for part in master.removeprefix(_STANDALONE).split(",")]
    parts = [match for match in found if match is not None and _is_possible(match)]
    if not is_standalone(master) or len(parts) < len(found):
        raise RefusedStart(f"the Spark master {master!r} has no host and port. Write it like spark://host:7077.")
    return tuple((match["v6"] or match["host"], int(match["v6_port"] or match["port"])) for match in parts)


def _is_possible(match: re.Match[str]) -> bool:
    """Whether a port has this number, and a name can be looked up."""
    try:
        (match["host"] or "").encode("idna")
    except UnicodeError:
        return False
    return 0 < int(match["v6_port"] or match["port"]) <= _LAST_PORT


def driver_address(master: str) -> str | None:
    """Returns this machine's address on the way to a standalone master.

    Returns None if the masters' names are unknown here. Executors connect to the driver at this address. A master on
    loopback gives a loopback address.
    """
    for host, port in addresses(master):
        try:
            family, kind, number, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with closing(socket.socket(family, kind, number)) as probe:
                probe.connect(target)  # UDP: this chooses the route and sends nothing
                return str(probe.getsockname()[0])
        except OSError:  # another master may be known
            continue
    return None


def bind_address(host: str) -> str:
    """Returns the address at which a driver listens that executors reach as `host`.

    It is `host` itself, or every address of this machine.

    Only an address of this machine can be listened at. Another address is translated on the way, as that of a
    container, and a name may have another address here than on the executors' machines.
    """
    text = host.strip("[]")
    with suppress(ValueError, OSError):
        family = socket.AF_INET6 if ip_address(text).version == 6 else socket.AF_INET
        with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            probe.bind((text, 0))
            return host
    return EVERYWHERE


def answers(master: str) -> bool:
    """Whether a process listens at the address of a standalone master, or of one of several."""
    for target in addresses(master):
        with suppress(OSError), closing(socket.create_connection(target, CONNECT_LIMIT_S)):
            return True
    return False


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    return address.startswith("127.") or address == "::1"
