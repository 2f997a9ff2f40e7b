"""A proxy that is slow once reports it in a sentence, and leaves no thread.

It works again afterwards.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from oncebench.errors import UserError
from oncebench.servers.proxy import loop as module
from oncebench.servers.proxy.framing import KafkaFraming
from oncebench.servers.proxy.loop import LoopThread
from oncebench.servers.proxy.network import Network
from oncebench.servers.proxy.tcp import Proxy
from tests.unit.servers.test_network import Echo

WAIT_S = 30.0


@contextmanager
def busy(owner: LoopThread | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keeps the loop busy inside the block."""
    assert owner is not None
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait(WAIT_S)

    owner._loop.call_soon_threadsafe(hold)
    assert held.wait(WAIT_S)
    with monkeypatch.context() as patched:
        patched.setattr(module, "LIMIT_S", 0.05)
        try:
            yield
        finally:
            go_on.set()


def ends(owner: LoopThread) -> bool:
    owner._thread.join(WAIT_S)
    return owner.closed and owner._loop.is_closed()


def test_slow_work_is_named_and_later_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        done.append(name)

    with closing(LoopThread("the proxy")) as loop:
        with busy(loop, monkeypatch), pytest.raises(UserError) as slow:
            loop.run(work("first"))
        assert str(slow.value) == (
            "the proxy did not answer within 0.05 s. Is the machine busy? Run it again when it is not"
        )
        loop.run(work("second"))
    assert done[-1] == "second"
    assert ends(loop)


def test_an_error_of_the_work_passes() -> None:
    async def work() -> None:
        raise TimeoutError("of the work")

    with closing(LoopThread("the proxy")) as loop, pytest.raises(TimeoutError, match="of the work"):
        loop.run(work())


def test_the_end_cancels_what_still_runs() -> None:
    cancelled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def begin() -> None:
        tasks.append(asyncio.create_task(forever()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    loop = LoopThread("the proxy")
    loop.run(begin())
    loop.close()
    loop.close()
    assert cancelled.is_set()


def test_a_proxy_that_was_too_slow_to_close_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = Echo()
    with closing(echo), closing(Proxy(KafkaFraming())) as proxy:
        with pytest.raises(UserError, match="the proxy did not answer"), proxy.open(echo.port):
            loop = proxy._loop
            with busy(loop, monkeypatch):
                proxy.cut()
        assert loop is not None
        assert ends(loop)
        with proxy.open(echo.port), socket.create_connection(("127.0.0.1", proxy.port), WAIT_S) as client:
            message = b"\0\0\0\x08" + b"\0\0\0\x01" * 2
            client.sendall(message)
            assert client.recv(len(message)) == message


def test_a_closed_proxy_refuses_although_its_thread_was_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Proxy(KafkaFraming())) as proxy:
        opened = proxy.open(1)
        opened.__enter__()
        loop = proxy._loop
        assert loop is not None
        with busy(loop, monkeypatch):
            with pytest.raises(UserError, match="the proxy did not answer"):
                opened.__exit__(None, None, None)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", proxy.port), WAIT_S)
        assert ends(loop)


def test_a_network_that_is_too_slow_to_close_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network({})
    with busy(network._loop, monkeypatch), pytest.raises(UserError, match="the network of the brokers did not answer"):
        network.close()
    assert ends(network._loop)
    network.close()
