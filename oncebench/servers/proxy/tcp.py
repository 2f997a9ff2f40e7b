"""The proxy itself: accepts connections, forwards both directions, and catches one request.

Promise: everything is forwarded unchanged unless a `Catch` or a `cut` is active. The proxy owns its port from the
beginning: connections are refused until it is opened, and while the link is cut. When its context ends, it has closed
every connection. It runs in a thread of this process, so it ends with the suite.

Failure modes: if the server does not listen, the client's connection is closed. A call takes too long, because the
machine is busy (`UserError`); the context still ends the thread and refuses connections.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.proxy.framing import Framing
from oncebench.servers.proxy.loop import LoopThread

_BIND_ATTEMPTS = 3  # another process may take a free port before we bind it


@dataclass
class Catch:
    """A catch of one request, or of one request and its repeats.

    It holds which request to catch, the action on it, and the outcome.

    Attributes:
        wanted: whether this is the request to catch.
        held_s: None: forward the request, drop the response, close the connection. A number: close the client's
            connection at once, and forward the request that many seconds later.
        withheld: close the client's connection at once and never forward the request. The same happens to every later
            request that is wanted, until the catch is forgotten: a client sends a lost request again.
        request: the request that was caught; the first one if there are several.
        answer: the server's response, which the client never sees.
        over: whether no response can come any more.
        forgotten: whether the catch was cancelled. The request is then not caught; a request that is being held is
            never sent; a response that has not come yet goes to the client.
    """

    wanted: Callable[[bytes], bool]
    held_s: float | None = None
    withheld: bool = False
    request: bytes | None = None
    answer: bytes | None = None
    over: bool = False
    forgotten: bool = False


class Proxy:
    """A proxy between clients and one server. Clients connect to `port`."""

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self._socket, self.port = _bound_socket()
        self._target = 0
        self._loop: LoopThread | None = None
        self._listening: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._catch: Catch | None = None

    @contextmanager
    def open(self, target: int) -> Iterator[None]:
        """Forwards connections to this loopback port until the end of the context."""
        self._target = target
        loop = self._loop = LoopThread("the proxy")
        try:
            loop.run(self._listen())
            yield
        finally:
            self._loop = self._catch = None
            try:
                loop.close()
            finally:
                self._refuse()

    def close(self) -> None:
        """Releases the port."""
        self._socket.close()

    def catch(self, catch: Catch) -> None:
        """Waits from now on for one request, on any connection."""
        self._catch = catch

    def forget(self, catch: Catch) -> None:
        """Cancels `catch`: see `Catch.forgotten`."""
        catch.forgotten = True
        if self._catch is catch:
            self._catch = None

    def cut(self) -> None:
        """Closes every connection and refuses new ones. A request that is being held is lost."""
        self._opened().run(self._cut())

    def mend(self) -> None:
        """Accepts connections again after `cut`."""
        self._opened().run(self._listen())

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def _opened(self) -> LoopThread:
        assert self._loop is not None, "open() comes first"
        return self._loop

    async def _listen(self) -> None:
        if self._listening is None:
            _reuse_address(self._socket, True)  # remains of closed connections must not keep us from listening
            self._socket.listen()
            self._listening = asyncio.create_task(self._accept())

    async def _cut(self) -> None:
        ending = [*self._connections]
        if self._listening is not None:
            ending.append(self._listening)
        self._refuse()
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _refuse(self) -> None:
        """Refuses connections from now on."""
        if self._listening is not None:
            self._socket.shutdown(socket.SHUT_RDWR)
            _reuse_address(self._socket, False)
            self._listening = None

    async def _accept(self) -> None:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(self._socket)
            task = asyncio.create_task(self._serve(client))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _serve(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            with suppress(OSError):
                server = await asyncio.open_connection(LOOPBACK, self._target)
                await _Connection(self, self._framing, reader, writer, *server).run()
        finally:
            writer.transport.abort()

    def catch_for(self, request: bytes) -> Catch | None:
        """Returns the active catch, if it wants this request.

        A catch is given to one request only, unless it withholds.
        """
        catch = self._catch
        if catch is None or not catch.wanted(request):
            return None
        if not catch.withheld:
            self._catch = None
        if catch.request is None:
            catch.request = request
        return catch


class _Connection:
    """One connection of a client, and the matching connection to the server."""

    def __init__(
        self,
        proxy: Proxy,
        framing: Framing,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        self._proxy, self._framing = proxy, framing
        self._from_client, self._to_client = from_client, to_client
        self._from_server, self._to_server = from_server, to_server
        self._caught: Catch | None = None
        self._client_gone = False

    async def run(self) -> None:
        """Forwards both directions until one side ends.

        If a request was caught, it goes on until the server has answered or the catch is forgotten.
        """
        requests, answers = asyncio.create_task(self._forward_requests()), asyncio.create_task(self._forward_answers())
        try:
            await asyncio.wait((requests, answers), return_when=asyncio.FIRST_COMPLETED)
            self._client_gone = requests.done()
            if self._active_catch() is not None:
                await answers
        finally:
            for task in (requests, answers):
                task.cancel()
            await asyncio.gather(requests, answers, return_exceptions=True)
            self._to_server.transport.abort()
            if self._caught is not None:
                self._caught.over = True

    async def _forward_requests(self) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            async for request in self._framing.requests(self._from_client):
                caught = self._proxy.catch_for(request)
                if caught is not None and caught.withheld:
                    self._to_client.transport.abort()
                    return
                if caught is not None:
                    self._caught = caught
                    if caught.held_s is not None:
                        self._to_client.transport.abort()
                        await asyncio.sleep(caught.held_s)
                        if caught.forgotten:
                            return
                self._to_server.write(request)
                await self._to_server.drain()

    async def _forward_answers(self) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            async for answer in self._framing.answers(self._from_server):
                catch = self._active_catch()
                if catch is not None and self._framing.belongs(answer, catch.request or b""):
                    catch.answer = answer
                    return
                if catch is None and self._client_gone:
                    return
                if not self._to_client.is_closing():
                    self._to_client.write(answer)
                    await self._to_client.drain()

    def _active_catch(self) -> Catch | None:
        """The catch whose response must not reach the client, unless it was forgotten."""
        return None if self._caught is None or self._caught.forgotten else self._caught


def _reuse_address(bound: socket.socket, reuse: bool) -> None:
    """Sets SO_REUSEADDR, which must be off while we do not listen.

    Otherwise another server could take the port.
    """
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)


def _bound_socket() -> tuple[socket.socket, int]:
    """A socket bound to a free port, which no server can take although nothing listens yet."""
    for attempt in range(1, _BIND_ATTEMPTS + 1):
        (port,) = free_ports(1)
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            bound.bind((LOOPBACK, port))
        except OSError:
            bound.close()
            if attempt == _BIND_ATTEMPTS:
                raise
        else:
            bound.setblocking(False)
            return bound, port
    raise AssertionError("the last attempt has raised")
