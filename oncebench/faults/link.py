"""Disturbs the connection to a server: delays a request, drops a response, or cuts it.

Promise: the server itself stays healthy, and everybody else reaches it all the time. In runs with these faults the
pipeline reaches the server through a proxy of the suite. The connection is whole again when the fault ends.

Failure modes, all recorded as not exercised (`nemesis-idle`):
- The expected request does not arrive within COME_LIMIT_S.
- Nothing shows that the server received the request.
- The lost response was a refusal. Then nothing was committed, so the pipeline has nothing to find out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.faults.context import FaultContext, pausing, waiting
from oncebench.faults.server import KAFKA, POSTGRES
from oncebench.record import events
from oncebench.servers.proxy.framing import (
    END_TXN,
    PRODUCE,
    commit_outcome,
    end_txn_error,
    is_commit,
    is_kafka,
    produce_error,
)
from oncebench.servers.proxy.tcp import Catch, Proxy
from pipeline.config import PipelineConfig

# From a failpoint to the next request it takes one step of a batch, or one batch: seconds on a busy machine.
COME_LIMIT_S = 30.0
# A broker that has the request answers at once. The limit allows for a broker that another fault restarts.
ANSWER_LIMIT_S = 30.0
# The client is in its commit when it is killed, however late: the proxy withholds the commit and every repeat.
_LOOK_S = 0.001
# (answer, request) -> whether the answer reports success, and the fields to record.
ReadAnswer = Callable[[bytes, bytes], tuple[bool, Mapping[str, Any]]]
_COMMITTED = frozenset({"COMMIT", "COMMIT PREPARED"})  # PostgreSQL answers ROLLBACK to a COMMIT that it did not execute


def link_to(server: str) -> str:
    """The name of the proxy in front of a server, among the servers of a `FaultContext`."""
    return f"link to {server}"


def late_commit(context: FaultContext, seconds: float) -> Generator[None]:
    """Closes the connection of the next EndTxn, and forwards the EndTxn `seconds` later."""
    catch = Catch(lambda request: is_kafka(END_TXN, request), held_s=seconds)
    yield from _catch_request(context, KAFKA, catch, events.COMMIT_HELD)
    if catch.answer is not None and catch.request is not None:
        context.note(events.COMMIT_ARRIVED, error_code=end_txn_error(catch.answer, catch.request))


def lose_answer(context: FaultContext, _seconds: float) -> Generator[None]:
    """Forwards the next EndTxn to the broker and drops the response.

    Without transactions it does so with the next Produce.
    """
    api_key, error = (END_TXN, end_txn_error) if context.config.guarantee == EXACTLY_ONCE else (PRODUCE, produce_error)

    def read(answer: bytes, request: bytes) -> tuple[bool, Mapping[str, Any]]:
        code = error(answer, request)
        return code == 0, {"error_code": code}

    yield from _lose_answer(context, KAFKA, Catch(lambda request: is_kafka(api_key, request)), read)


def lose_postgres_answer(context: FaultContext, _seconds: float) -> Generator[None]:
    """Forwards the next COMMIT or COMMIT PREPARED to PostgreSQL and drops the response."""

    def read(answer: bytes, _request: bytes) -> tuple[bool, Mapping[str, Any]]:
        outcome = commit_outcome(answer)
        return outcome.get("command_tag") in _COMMITTED, outcome

    yield from _lose_answer(context, POSTGRES, Catch(is_commit), read)


def cut_link(context: FaultContext, seconds: float) -> Generator[None]:
    """Cuts the pipeline off from the broker for `seconds`: connections close, new ones fail."""
    yield from _cut(context, KAFKA, seconds)


def cut_postgres_link(context: FaultContext, seconds: float) -> Generator[None]:
    """Cuts the pipeline off from PostgreSQL for `seconds`: connections close, new ones fail."""
    yield from _cut(context, POSTGRES, seconds)


@contextmanager
def commit_held(
    servers: Mapping[str, Any], config: PipelineConfig, outage_s: float, given_up: Callable[[], bool]
) -> Iterator[dict[str, bool] | None]:
    """Waits for the next commit of a transaction and keeps it from the broker, before an outage.

    The client loses its connection and sends the commit again on a new one. Neither the commit nor a repeat reaches the
    broker. The context must end the client, however long that takes.

    Args:
        given_up: ends the wait, for example because the client has died.

    Yields:
        The field `commit_held`: whether a commit came within COME_LIMIT_S. Nothing without an outage, and under
        another guarantee than exactly-once. None if the wait was given up: then there is no outage to begin.
    """
    proxy = servers.get(link_to(KAFKA))
    if not outage_s or proxy is None or config.guarantee != EXACTLY_ONCE:
        yield {}
        return
    catch = Catch(lambda request: is_kafka(END_TXN, request), withheld=True)
    proxy.catch(catch)
    try:
        deadline = time.monotonic() + COME_LIMIT_S
        while not given_up() and catch.request is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        if given_up():
            yield None
            return
        yield {"commit_held": catch.request is not None}
        # The dead client's last repeat may still be in a connection. It must not pass when the catch is forgotten.
        proxy.cut()
        proxy.mend()
    finally:
        proxy.forget(catch)


def _cut(context: FaultContext, server: str, seconds: float) -> Generator[None]:
    proxy = _proxy(context, server)
    with context.without_restarts():
        try:
            proxy.cut()
            context.note(events.LINK_CUT)
            context.resume_pipeline()
            yield from pausing(seconds)
        finally:
            proxy.mend()
            context.note(events.LINK_MENDED)


def _lose_answer(context: FaultContext, server: str, catch: Catch, read: ReadAnswer) -> Generator[None]:
    """Drops the answer to a request and records it. Idle unless it reported success."""
    yield from _catch_request(context, server, catch, events.REQUEST_CAUGHT)
    if catch.answer is not None and catch.request is not None:
        success, fields = read(catch.answer, catch.request)
        context.note(events.ANSWER_LOST, **fields)
        if not success:
            context.idle("the lost answer reported no success")


def _catch_request(context: FaultContext, server: str, catch: Catch, event: str) -> Generator[None]:
    """Waits for the request, and then for its answer. Idle without an answer."""
    proxy = _proxy(context, server)
    proxy.catch(catch)
    try:
        context.resume_pipeline()
        yield from waiting(lambda: catch.request is not None, COME_LIMIT_S)
        if catch.request is not None:
            context.note(event)
            yield from waiting(lambda: catch.over, ANSWER_LIMIT_S + (catch.held_s or 0.0))
    finally:
        proxy.forget(catch)
    # The proxy forwards everything from now on, so an answer that has not arrived yet is not lost.
    if catch.request is None:
        context.idle("the pipeline sent no such request")
    elif catch.answer is None:
        context.idle("the server never answered the request that was caught")


def _proxy(context: FaultContext, server: str) -> Proxy:
    proxy: Proxy = context.servers[link_to(server)]
    return proxy
