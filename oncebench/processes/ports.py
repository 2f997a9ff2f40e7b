"""Free loopback ports for the servers that the suite starts."""

import random
import socket

from oncebench.errors import MissingEnvironment

LOOPBACK = "127.0.0.1"
# Below the range from which Linux (32768-60999) and macOS (49152-65535) take ports for outgoing connections. So no
# outgoing connection can occupy a broker's port between its kill and its restart.
PORTS = range(20_000, 32_000)
_TRIES = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # like the JVM: connections that were just closed do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> tuple[int, ...]:
    """Returns `count` different free loopback ports.

    Another process may take one of them before the server listens, so the caller must be ready to retry.
    Raises `MissingEnvironment` if there are not enough.
    """
    found: set[int] = set()
    for _ in range(_TRIES):
        if len(found) == count:
            break
        port = random.choice(PORTS)
        if is_free(port):
            found.add(port)
    else:
        raise MissingEnvironment(
            f"no {count} free ports on {LOOPBACK} between {PORTS.start} and {PORTS.stop}. End what listens there"
        )
    return tuple(found)
