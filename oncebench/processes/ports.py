"""Loopback ports for what the suite starts."""

import random
import socket

from oncebench.errors import MissingEnvironment

LOOPBACK = "127.0.0.1"
# Below the range from which Linux (32768-60999) and macOS (49152-65535) take ports for outgoing connections: nobody's
# connection can sit on a broker's port while the broker is down between kill and restart.
PORTS = range(20_000, 32_000)
_TRIES = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as the JVM does: connections that were closed a moment ago don't count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different free loopback ports.

    Another process may still take one before its server listens: whoever starts a server must be ready to try again.
    Raises `MissingEnvironment` if there are none.
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
            f"no {count} free ports on {LOOPBACK} between {PORTS.start} and {PORTS.stop}; end what listens there"
        )
    return tuple(found)
