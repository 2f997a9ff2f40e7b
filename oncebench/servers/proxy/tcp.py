"""A TCP proxy on loopback between a client and a server: it can hold a request back, lose an answer, and cut the link.

Promise: it passes everything on unchanged until it is told otherwise, its port is its own from the beginning (until it
is opened, and while the link is cut, connections are refused), and nothing of it is left when its context ends. It
lives in a thread of this process, so that it dies with the suite. What can go wrong: a server that is not there closes
the client's connection, as a proxy of anybody's would.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.proxy.framing import Framing

# Nothing that is waited for inside the proxy's own thread takes more than some ms.
_LIMIT_S = 10.0
_BINDS = 3  # a free port can be taken by somebody else before we have it


@dataclass
class Catch:
    """What is to be done with the next request that is wanted, and what became of it.

    Attributes:
        wanted: whether it is this request.
        held_s: None: it goes through, its answer is lost, and the connection is closed. A number: the connection is
            closed for the client at once, and the request comes to the server so many seconds later.
        request: the one that was caught.
        answer: what the server said to it; the client never sees it.
        over: whether the server will say nothing more about it.
        forgotten: whether it is not to be caught any more, or, if it is being held back, never to be sent. Its answer,
            if that has not come yet, is the client's again.
    """

    wanted: Callable[[bytes], bool]
    held_s: float | None = None
    request: bytes | None = None
    answer: bytes | None = None
    over: bool = False
    forgotten: bool = False


class Proxy:
    """Between clients and one server. `port`: where clients find it."""

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self._socket, self.port = _bound()
        self._target = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening: asyncio.Task[None] | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._catch: Catch | None = None

    @contextmanager
    def open(self, target: int) -> Iterator[None]:
        """Passes connections on to this loopback port, until the end of the context."""
        self._target = target
        loop = self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="proxy", daemon=True)
        thread.start()
        try:
            self._run(self._listen())
            yield
        finally:
            self._run(self._cut())
            self._loop = self._catch = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_LIMIT_S)
            loop.close()

    def close(self) -> None:
        """Gives the port back."""
        self._socket.close()

    def catch(self, catch: Catch) -> None:
        """From now on: waits for one request, on whichever connection it comes."""
        self._catch = catch

    def forget(self, catch: Catch) -> None:
        """Undoes `catch`: what has not been caught passes, and so does an answer that has not come yet; what is being
        held back is lost."""
        catch.forgotten = True
        if self._catch is catch:
            self._catch = None

    def cut(self) -> None:
        """Closes every connection and refuses new ones; what is being held back is lost."""
        self._run(self._cut())

    def mend(self) -> None:
        """Lets clients connect again after `cut`."""
        self._run(self._listen())

    @property
    def lines(self) -> int:
        """Connections that are open."""
        return len(self._lines)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None, "open() comes first"
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_LIMIT_S)

    async def _listen(self) -> None:
        if self._listening is None:
            _share(self._socket, True)  # with the remains of closed connections
            self._socket.listen()
            self._listening = asyncio.create_task(self._accept())

    async def _cut(self) -> None:
        ending = [*self._lines]
        if self._listening is not None:
            self._socket.shutdown(socket.SHUT_RDWR)
            _share(self._socket, False)
            ending.append(self._listening)
            self._listening = None
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(self._socket)
            task = asyncio.create_task(self._serve(client))
            self._lines.add(task)
            task.add_done_callback(self._lines.discard)

    async def _serve(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            with suppress(OSError):
                line = _Line(
                    self, self._framing, reader, writer, *await asyncio.open_connection(LOOPBACK, self._target)
                )
                await line.run()
        finally:
            writer.transport.abort()

    def taken(self, request: bytes) -> Catch | None:
        """Of a line: what is to be done with this request, if anything is; each catch is given to one request."""
        catch = self._catch
        if catch is None or not catch.wanted(request):
            return None
        self._catch = None
        catch.request = request
        return catch


class _Line:
    """One connection of a client, and its continuation to the server."""

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
        """Passes both ways until one side ends; a request that was caught is followed to its answer or until that is
        forgotten."""
        upward, downward = asyncio.create_task(self._upward()), asyncio.create_task(self._downward())
        try:
            await asyncio.wait((upward, downward), return_when=asyncio.FIRST_COMPLETED)
            self._client_gone = upward.done()
            if self._awaited() is not None:
                await downward
        finally:
            for task in (upward, downward):
                task.cancel()
            await asyncio.gather(upward, downward, return_exceptions=True)
            self._to_server.transport.abort()
            if self._caught is not None:
                self._caught.over = True

    async def _upward(self) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            async for request in self._framing.requests(self._from_client):
                caught = self._proxy.taken(request)
                if caught is not None:
                    self._caught = caught
                    if caught.held_s is not None:
                        self._to_client.transport.abort()
                        await asyncio.sleep(caught.held_s)
                        if caught.forgotten:
                            return
                self._to_server.write(request)
                await self._to_server.drain()

    async def _downward(self) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            async for answer in self._framing.answers(self._from_server):
                awaited = self._awaited()
                if awaited is not None and self._framing.belongs(answer, awaited.request or b""):
                    awaited.answer = answer
                    return
                if awaited is None and self._client_gone:
                    return
                if not self._to_client.is_closing():
                    self._to_client.write(answer)
                    await self._to_client.drain()

    def _awaited(self) -> Catch | None:
        """The catch to whose request an answer is to come that the client must not see; None once it is forgotten."""
        return None if self._caught is None or self._caught.forgotten else self._caught


def _share(made: socket.socket, shared: bool) -> None:
    """Whether others may have the port too. Who does not listen must say no, or another server could take it."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)


def _bound() -> tuple[socket.socket, int]:
    """A socket with a port that no server can take, though nobody listens there yet."""
    for attempt in range(1, _BINDS + 1):
        (port,) = free_ports(1)
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.bind((LOOPBACK, port))
        except OSError:
            made.close()
            if attempt == _BINDS:
                raise
        else:
            made.setblocking(False)
            return made, port
    raise AssertionError("the last attempt has raised")
