"""What is done to the link between the pipeline and a server: a request comes late, an answer is lost, nothing passes.

Promise: the server itself is well, and others reach it all the time. The pipeline reaches it through a proxy of the
suite's in such runs, and passes through it unharmed when an act is over. What can go wrong: the request that is waited
for does not come within COME_LIMIT_S, nothing shows that the server got it, or the answer that was lost was a refusal:
whoever never hears of a commit that took place has something to find out, and of one that did not take place has not.
Then the fault has tested nothing (`nemesis-idle`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.faults.context import Stage, pausing, waiting
from oncebench.faults.server import KAFKA, POSTGRES
from oncebench.servers.proxy.framing import (
    END_TXN,
    PRODUCE,
    commit_said,
    end_txn_error,
    is_commit,
    is_kafka,
    produce_error,
)
from oncebench.servers.proxy.tcp import Catch, Proxy

# From a failpoint to the next request is a step of a batch, or a batch: seconds on a busy machine.
COME_LIMIT_S = 30.0
# A broker that got the request answers at once; this is for one that is being restarted by another fault.
ANSWER_LIMIT_S = 30.0
# Whether an answer to this request is a success, and what of it is noted.
Reading = Callable[[bytes, bytes], tuple[bool, Mapping[str, Any]]]
_COMMITTED = frozenset({"COMMIT", "COMMIT PREPARED"})  # PostgreSQL's word for a COMMIT that it did not do is ROLLBACK


def link_to(server: str) -> str:
    """What the proxy before a server is called among the servers of a stage."""
    return f"link to {server}"


def late_commit(stage: Stage, seconds: float) -> Generator[None]:
    """The next EndTxn comes to the broker so much later; its connection is lost at once."""
    catch = Catch(lambda request: is_kafka(END_TXN, request), held_s=seconds)
    yield from _caught(stage, KAFKA, catch, "commit-held")
    if catch.answer is not None and catch.request is not None:
        stage.note("commit-arrived", error_code=end_txn_error(catch.answer, catch.request))


def lose_answer(stage: Stage, _seconds: float) -> Generator[None]:
    """The next EndTxn (or Produce, where there are no transactions) reaches the broker; its answer reaches nobody."""
    api_key, error = (END_TXN, end_txn_error) if stage.config.guarantee == EXACTLY_ONCE else (PRODUCE, produce_error)

    def read(answer: bytes, request: bytes) -> tuple[bool, Mapping[str, Any]]:
        code = error(answer, request)
        return code == 0, {"error_code": code}

    yield from _lost(stage, KAFKA, Catch(lambda request: is_kafka(api_key, request)), read)


def lose_postgres_answer(stage: Stage, _seconds: float) -> Generator[None]:
    """The next COMMIT or COMMIT PREPARED reaches PostgreSQL; its answer reaches nobody."""

    def read(answer: bytes, _request: bytes) -> tuple[bool, Mapping[str, Any]]:
        said = commit_said(answer)
        return said.get("command_tag") in _COMMITTED, said

    yield from _lost(stage, POSTGRES, Catch(is_commit), read)


def cut_link(stage: Stage, seconds: float) -> Generator[None]:
    """No connection between the pipeline and the broker for so long: open ones are closed, new ones refused."""
    yield from _cut(stage, KAFKA, seconds)


def cut_postgres_link(stage: Stage, seconds: float) -> Generator[None]:
    """No connection between the pipeline and PostgreSQL for so long."""
    yield from _cut(stage, POSTGRES, seconds)


def _cut(stage: Stage, server: str, seconds: float) -> Generator[None]:
    proxy = _proxy(stage, server)
    with stage.holding():
        proxy.cut()
        stage.note("link-cut")
        try:
            stage.go_on()
            yield from pausing(seconds)
        finally:
            proxy.mend()
            stage.note("link-mended")


def _lost(stage: Stage, server: str, catch: Catch, read: Reading) -> Generator[None]:
    """Loses the answer to a request, and notes what it said; idle unless that was a success."""
    yield from _caught(stage, server, catch, "request-caught")
    if catch.answer is not None and catch.request is not None:
        success, said = read(catch.answer, catch.request)
        stage.note("answer-lost", **said)
        if not success:
            stage.idle("the answer that was lost was no success")


def _caught(stage: Stage, server: str, catch: Catch, told: str) -> Generator[None]:
    """Waits until the request has come, and then until nothing more will be heard of it; idle without an answer."""
    proxy = _proxy(stage, server)
    proxy.catch(catch)
    try:
        stage.go_on()
        yield from waiting(lambda: catch.request is not None, COME_LIMIT_S)
        if catch.request is not None:
            stage.note(told)
            yield from waiting(lambda: catch.over, ANSWER_LIMIT_S + (catch.held_s or 0.0))
    finally:
        proxy.forget(catch)
    # What comes from here on passes: what has not come by now was not lost.
    if catch.request is None:
        stage.idle("the pipeline sent no such request")
    elif catch.answer is None:
        stage.idle("the server never answered the request that was caught")


def _proxy(stage: Stage, server: str) -> Proxy:
    proxy: Proxy = stage.servers[link_to(server)]
    return proxy
