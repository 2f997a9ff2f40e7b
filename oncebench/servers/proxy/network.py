"""The network between servers of one cluster, which can be cut.

Each connection from one server to another passes a proxy.

    broker 1 ---> [ 127.0.1.2, the proxy from 1 to 2 ] ---> broker 2 at 127.0.0.1

Every ordered pair of members has its own proxies. A member is reached by a name, and each member resolves the names by
its own hosts file: those of the others to the proxies from here to there, its own to itself. The ports stay the same.

Promise: `cut` holds every byte between one member and the others, in both directions, and answers nothing. At its end
the held bytes arrive in their order, also those of a connection that was closed meanwhile: TCP delivers them late in
the same way. A connection that begins during the cut opens, stays silent, and is closed at the end of the cut without
a byte. The proxies run in a thread of this process.

Failure modes: a port is taken at a proxy's address (`OSError`). If the server does not listen, the connection is
closed. A call takes too long, because the machine is busy (`UserError`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import permutations

from oncebench.processes.ports import LOOPBACK
from oncebench.servers.proxy.loop import LoopThread

_CHUNK_BYTES = 65536
_BACKLOG = 100


def name_of(number: int) -> str:
    """The host name of a member."""
    return f"broker-{number}"


def _address(source: int, target: int) -> str:
    """Returns the address of the proxies from one member to another.

    On Linux every address 127.x.x.x is on loopback.
    """
    return f"127.0.{source}.{target}"


class Network:
    """Proxies between members, which listen at these ports of 127.0.0.1."""

    def __init__(self, ports: Mapping[int, tuple[int, ...]]) -> None:
        """Listens until `close`. Raises OSError if a port is taken.

        Args:
            ports: the ports of each member where others reach it, by the number of the member (1 to 254).
        """
        self._members = frozenset(ports)
        self._cut_off: int | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = LoopThread("the network of the brokers")
        try:
            self._loop.run(self._listen(ports))
        except BaseException:
            self.close()
            raise

    def hosts(self, number: int) -> str:
        """Returns the text of a member's hosts file.

        With it the member reaches itself directly, and the others through proxies.
        """
        others = {name_of(other): _address(number, other) for other in self._members - {number}}
        own = dict.fromkeys((name_of(number), "localhost", socket.gethostname()), LOOPBACK)
        return "".join(f"{address} {name}\n" for name, address in {**others, **own}.items())

    @contextmanager
    def cut(self, number: int) -> Iterator[None]:
        """Cuts one member off from the others until the end of the context.

        Only one member is cut off at a time.
        """
        assert self._cut_off is None, "one member is cut off already"
        try:
            self._loop.run(self._set(number))
            yield
        finally:
            self._loop.run(self._set(None))

    def close(self) -> None:
        """Closes every connection and listener. Further calls do nothing."""
        if self._loop.closed:
            return
        try:
            self._loop.run(self._end())
        finally:
            self._loop.close()

    async def _listen(self, ports: Mapping[int, tuple[int, ...]]) -> None:
        self._whole = asyncio.Event()
        self._whole.set()
        for source, target in permutations(ports, 2):
            for port in ports[target]:
                serve = partial(self._serve, frozenset((source, target)), port)
                host = _address(source, target)
                self._servers.append(await asyncio.start_server(serve, host, port, backlog=_BACKLOG))

    async def _set(self, cut_off: int | None) -> None:
        self._cut_off = cut_off
        if cut_off is None:
            self._whole.set()
        else:
            self._whole.clear()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()

    async def _serve(
        self, ends: frozenset[int], target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forwards one connection between these two members to the port `target`."""
        task = asyncio.current_task()
        assert task is not None, "asyncio starts a task for each connection"
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        writers = [writer]
        try:
            if self._cut_off in ends:
                await self._whole.wait()
                return
            with suppress(OSError):
                from_server, to_server = await asyncio.open_connection(LOOPBACK, target)
                writers.append(to_server)
                await asyncio.gather(self._forward(ends, reader, to_server), self._forward(ends, from_server, writer))
        finally:
            for each in writers:
                each.transport.abort()

    async def _forward(self, ends: frozenset[int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards one direction until its sender ends, then closes the other end.

        Waits while the two members are cut off from each other.
        """
        with suppress(OSError):
            while piece := await reader.read(_CHUNK_BYTES):
                await self._passage(ends)
                writer.write(piece)
                await writer.drain()
        await self._passage(ends)
        writer.close()

    async def _passage(self, ends: frozenset[int]) -> None:
        """Returns when no cut is between these members."""
        while self._cut_off in ends:
            await self._whole.wait()
