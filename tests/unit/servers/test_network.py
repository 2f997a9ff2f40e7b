"""The network between members of a cluster.

A cut holds what passes between one member and the others. The tests start no Kafka.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from oncebench.servers.proxy.network import Network, name_of

LIMIT_S = 10.0
SILENCE_S = 0.3  # loopback delivers in less than a millisecond


class Echo:
    """A server that answers everything with itself. `came`: what it received."""

    def __init__(self) -> None:
        self.came = b""
        self.begun, self.ended = threading.Event(), threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._socket.accept()[:1], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            while piece := client.recv(1024):
                self.came += piece
                self.begun.set()
                client.sendall(piece)
        self.ended.set()

    def close(self) -> None:
        with suppress(OSError):  # closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def echoes() -> Iterator[dict[int, Echo]]:
    servers = {number: Echo() for number in (1, 2, 3)}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture
def network(echoes: dict[int, Echo]) -> Iterator[Network]:
    with closing(Network({number: (echo.port,) for number, echo in echoes.items()})) as network:
        yield network


@contextmanager
def connected(network: Network, echoes: dict[int, Echo], source: int, target: int) -> Iterator[socket.socket]:
    """A connection of one member to another, as the hosts file of the first one names it."""
    found = dict(reversed(line.split()) for line in network.hosts(source).splitlines())
    with socket.create_connection((found[name_of(target)], echoes[target].port), LIMIT_S) as client:
        yield client


def answers(client: socket.socket) -> bool:
    client.sendall(b"a")
    return client.recv(1) == b"a"


def silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(LIMIT_S)
    return False


@pytest.mark.parametrize("cut_off", [1, 2])
def test_a_cut_holds_bytes_and_delivers_them_later(network: Network, echoes: dict[int, Echo], cut_off: int) -> None:
    with connected(network, echoes, 1, 2) as client:
        assert answers(client)
        with network.cut(cut_off):
            client.sendall(b"held")
            assert silent(client)
            assert echoes[2].came == b"a"
        assert client.recv(1) == b"h"


def test_a_close_during_the_cut_arrives_after_the_bytes(network: Network, echoes: dict[int, Echo]) -> None:
    with connected(network, echoes, 1, 2) as client:
        assert answers(client)
        with network.cut(2):
            client.sendall(b"held")
            client.close()
            assert not echoes[2].ended.wait(SILENCE_S)
        assert echoes[2].ended.wait(LIMIT_S)
        assert echoes[2].came == b"aheld"


def test_a_cut_is_between_one_member_and_the_others(network: Network, echoes: dict[int, Echo]) -> None:
    for cut_off, source, target in ((1, 1, 1), (2, 2, 2), (2, 1, 3), (2, 3, 1)):
        with network.cut(cut_off), connected(network, echoes, source, target) as client:
            assert answers(client)


def test_a_connection_from_the_time_of_the_cut_delivers_nothing(network: Network, echoes: dict[int, Echo]) -> None:
    with network.cut(2), connected(network, echoes, 2, 1) as client:
        client.sendall(b"lost")
        assert silent(client)
        late = client.dup()
    with late, suppress(ConnectionError):
        assert late.recv(1) == b""
    with connected(network, echoes, 2, 1) as client:
        assert answers(client)
    assert echoes[1].came == b"a"


def test_a_server_that_does_not_listen_ends_the_connection(network: Network, echoes: dict[int, Echo]) -> None:
    echoes[2].close()
    with connected(network, echoes, 1, 2) as client, suppress(ConnectionError):
        assert client.recv(1) == b""


def test_a_closed_network_closes_its_connections(network: Network, echoes: dict[int, Echo]) -> None:
    with connected(network, echoes, 1, 2) as client:
        assert answers(client)
        network.close()
        with suppress(ConnectionError):
            assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError), connected(network, echoes, 1, 2):
        pass


def test_a_taken_port_is_reported_and_releases_the_others(echoes: dict[int, Echo]) -> None:
    with socket.create_server(("127.0.2.3", echoes[3].port)):
        ports = {number: (echo.port,) for number, echo in echoes.items()}
        with pytest.raises(OSError, match="in use"):
            Network(ports)
    Network(ports).close()
