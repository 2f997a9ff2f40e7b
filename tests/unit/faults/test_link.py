"""Faults of the connection: which request each catches, and what it records."""

from __future__ import annotations

import struct
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from oncebench.faults import link
from oncebench.faults.context import FaultContext
from oncebench.faults.link import link_to
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.lab import Lab
from oncebench.lab.links import open_links
from oncebench.scenario.cell import Cell
from oncebench.servers.kafka.topics import Kafka
from oncebench.servers.proxy.framing import END_TXN, PRODUCE, KafkaFraming
from oncebench.servers.proxy.tcp import Catch, Proxy
from tests.unit.faults.fake_pipeline import World, run
from tests.unit.servers.test_proxy import Server as KafkaServer
from tests.unit.servers.test_proxy import ask, connected, kafka_answer, kafka_request

AT_IT = 51  # CONCURRENT_TRANSACTIONS: try again
NO_LEADER = 6  # NOT_LEADER_OR_FOLLOWER: ask another broker
DEFERRED = b"SERROR\0VERROR\0C23505\0Mduplicate key\0\0"  # a constraint that is looked at when the commit comes


def message(kind: bytes, body: bytes) -> bytes:
    """Of PostgreSQL's protocol."""
    return kind + struct.pack("!I", 4 + len(body)) + body


def end_txn_answer(code: int) -> bytes:
    return struct.pack("!iixih", 11, 7, 0, code)


def produce_answer(*codes: int) -> bytes:
    partitions = (struct.pack("!ihq", number, code, 0) for number, code in enumerate(codes))
    body = struct.pack("!ih2si", 1, 2, b"it", len(codes)) + b"".join(each + b"\0" * 8 for each in partitions)
    return struct.pack("!ii", 8 + len(body), 7) + body + struct.pack("!i", 0)


COMMIT, SECOND_PHASE = message(b"Q", b"COMMIT\0"), message(b"Q", b"COMMIT PREPARED 'a:1'\0")
JAVAS_COMMIT = message(b"P", b"S_2\0COMMIT\0\0\0")  # then bound and executed in the same breath
COMMITTED, PREPARED_COMMITTED = (
    message(b"C", tag) + message(b"Z", b"I") for tag in (b"COMMIT\0", b"COMMIT PREPARED\0")
)
JAVA_COMMITTED = message(b"1", b"") + message(b"2", b"") + COMMITTED
KAFKA, POSTGRES = link.lose_answer, link.lose_postgres_answer


class Link:
    """A fake proxy. `passes`: the requests that come once the pipeline continues."""

    def __init__(self, *passes: bytes, answer: bytes = COMMITTED) -> None:
        self.passes, self.answer = passes, answer
        self.said: list[str] = []

    def catch(self, catch: Catch) -> None:
        self.said.append("catch")
        for request in self.passes:
            if catch.wanted(request) and catch.request is None:
                catch.request, catch.answer, catch.over = request, self.answer, True

    def forget(self, _catch: Catch) -> None:
        self.said.append("forget")

    def cut(self) -> None:
        self.said.append("cut")

    def mend(self) -> None:
        self.said.append("mend")


def request(api_key: int) -> bytes:
    return struct.pack("!ihhi", 8, api_key, 3, 7)


def world_with_link(folder: Path, proxy: Any, guarantee: str = "exactly-once") -> tuple[World, FaultContext]:
    world = World(folder)
    context = world.context("link")
    context.servers = {link_to("kafka"): proxy, link_to("postgres"): proxy}
    context.config = replace(context.config, guarantee=guarantee)
    return world, context


@pytest.mark.parametrize(
    ("injection", "guarantee", "passes", "answer", "events"),
    [
        (link.late_commit, "exactly-once", request(END_TXN), end_txn_answer(90), ["commit-held", "commit-arrived"]),
        (link.lose_answer, "exactly-once", request(END_TXN), end_txn_answer(0), ["request-caught", "answer-lost"]),
        (link.lose_answer, "at-least-once", request(PRODUCE), produce_answer(0), ["request-caught", "answer-lost"]),
        (link.lose_postgres_answer, "exactly-once", COMMIT, COMMITTED, ["request-caught", "answer-lost"]),
    ],
)
def test_each_fault_catches_its_own_request_only(
    tmp_path: Path, injection: Any, guarantee: str, passes: bytes, answer: bytes, events: list[str]
) -> None:
    proxy = Link(request(3), request(18), passes, answer=answer)
    world, context = world_with_link(tmp_path, proxy, guarantee)
    run(injection(context, 2.0))
    assert (world.events, proxy.said) == (["pipeline-continued", *events], ["catch", "forget"])


@pytest.mark.parametrize(
    ("injection", "guarantee", "passes", "answer", "said", "success"),
    [
        (KAFKA, "exactly-once", request(END_TXN), end_txn_answer(0), {"error_code": 0}, True),
        (KAFKA, "exactly-once", request(END_TXN), end_txn_answer(AT_IT), {"error_code": AT_IT}, False),
        (KAFKA, "at-least-once", request(PRODUCE), produce_answer(0, 0), {"error_code": 0}, True),
        (KAFKA, "at-least-once", request(PRODUCE), produce_answer(0, NO_LEADER), {"error_code": NO_LEADER}, False),
        (POSTGRES, "exactly-once", COMMIT, COMMITTED, {"command_tag": "COMMIT"}, True),
        (POSTGRES, "at-least-once", JAVAS_COMMIT, JAVA_COMMITTED, {"command_tag": "COMMIT"}, True),
        (POSTGRES, "exactly-once", SECOND_PHASE, PREPARED_COMMITTED, {"command_tag": "COMMIT PREPARED"}, True),
        (POSTGRES, "exactly-once", COMMIT, message(b"C", b"ROLLBACK\0"), {"command_tag": "ROLLBACK"}, False),
        (POSTGRES, "exactly-once", COMMIT, message(b"E", DEFERRED), {"sqlstate": "23505"}, False),
        (POSTGRES, "exactly-once", COMMIT, message(b"1", b"") + message(b"Z", b"T"), {}, False),  # parsed, and no more
    ],
)
def test_a_lost_answer_is_idle_unless_it_was_a_success(
    tmp_path: Path, injection: Any, guarantee: str, passes: bytes, answer: bytes, said: dict[str, Any], success: bool
) -> None:
    world, context = world_with_link(tmp_path, Link(passes, answer=answer), guarantee)
    run(injection(context, 2.0))
    assert {"event": "answer-lost", "hit_us": context.hit["t_us"], **said} in world.notes
    assert ("nemesis-idle" in world.events) is not success


@pytest.mark.parametrize("injection", [link.late_commit, link.lose_answer, link.lose_postgres_answer])
def test_a_request_that_never_comes_makes_the_fault_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, injection: Any
) -> None:
    monkeypatch.setattr(link, "COME_LIMIT_S", 0.0)
    proxy = Link(request(PRODUCE))
    world, context = world_with_link(tmp_path, proxy)
    run(injection(context, 2.0))
    assert (world.events, proxy.said) == (["pipeline-continued", "nemesis-idle"], ["catch", "forget"])


@pytest.mark.parametrize(
    ("injection", "passes", "event"),
    [
        (link.late_commit, request(END_TXN), "commit-held"),
        (link.lose_answer, request(END_TXN), "request-caught"),
        (link.lose_postgres_answer, COMMIT, "request-caught"),
    ],
)
def test_a_request_without_answer_makes_the_fault_idle(
    tmp_path: Path, injection: Any, passes: bytes, event: str
) -> None:
    class Silent(Link):
        def catch(self, catch: Catch) -> None:
            super().catch(catch)
            catch.answer = None

    world, context = world_with_link(tmp_path, Silent(passes))
    run(injection(context, 2.0))
    assert world.events == ["pipeline-continued", event, "nemesis-idle"]


@pytest.mark.parametrize("passes", [(), (COMMIT,)])
def test_a_fault_is_idle_only_after_the_proxy_forgot_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: tuple[bytes, ...]
) -> None:
    for limit in ("COME_LIMIT_S", "ANSWER_LIMIT_S"):
        monkeypatch.setattr(link, limit, 0.0)

    class Unanswered(Link):
        def catch(self, catch: Catch) -> None:
            super().catch(catch)
            catch.answer, catch.over = None, False

        def forget(self, catch: Catch) -> None:
            super().forget(catch)
            world.events.append("forgotten")

    world, context = world_with_link(tmp_path, Unanswered(*passes))
    run(link.lose_postgres_answer(context, 0.0))
    assert world.events[-2:] == ["forgotten", "nemesis-idle"]


@pytest.mark.parametrize("injection", [link.late_commit, link.lose_answer, link.lose_postgres_answer])
def test_a_fault_that_is_cut_short_lets_everything_pass(tmp_path: Path, injection: Any) -> None:
    proxy = Link()
    _, context = world_with_link(tmp_path, proxy)
    running = injection(context, 3600.0)
    next(running)
    running.close()
    assert proxy.said == ["catch", "forget"]


@pytest.mark.parametrize("cut_short", [False, True])
@pytest.mark.parametrize("cut", [link.cut_link, link.cut_postgres_link])
def test_a_cut_link_is_mended_at_the_end_of_the_run(tmp_path: Path, cut: Any, cut_short: bool) -> None:
    proxy = Link()
    world, context = world_with_link(tmp_path, proxy)
    injection = cut(context, 3600.0 if cut_short else 0.001)
    next(injection)
    assert (proxy.said, context.held, world.attempts[0].thawed) == (["cut"], True, 1)
    injection.close() if cut_short else run(injection, polls=10**6)
    assert (proxy.said, context.held) == (["cut", "mend"], False)


def test_no_repeat_of_a_held_commit_arrives_however_late_the_client_is_killed(tmp_path: Path) -> None:
    _, context = world_with_link(tmp_path, None)
    with closing(KafkaServer()) as server, closing(Proxy(KafkaFraming())) as proxy, proxy.open(server.port):
        servers = {link_to("kafka"): proxy}
        with connected(proxy) as first:
            # the first commit comes while the run waits for it
            def sent_once() -> bool:
                if first.fileno() >= 0:
                    first.sendall(kafka_request(END_TXN, 1))
                    first.close()
                return False

            with link.commit_held(servers, context.config, 20.0, sent_once) as held:
                for number in range(2, 5):
                    with connected(proxy) as client:
                        assert ask(client, kafka_request(END_TXN, number)) == b""
                proxy._opened()._loop.call_soon_threadsafe(time.sleep, 0.2)  # a busy proxy reads the last one later
                with connected(proxy) as client:
                    client.sendall(kafka_request(END_TXN, 5))
        assert (held, server.came) == ({"commit_held": True}, [])
        with connected(proxy) as successor:
            assert ask(successor, kafka_request(END_TXN, 6)) == kafka_answer(6)
        assert server.came == [kafka_request(END_TXN, 6)]


class Server:
    dsn = "postgresql://me:secret@127.0.0.1:5999/here"


def lab(proxy: Proxy) -> Lab:
    return Lab(
        Kafka(KafkaAccess("127.0.0.1:1")), cast("Any", None), (), servers={"postgres": Server()}, link=(proxy, 1)
    )


def test_only_runs_with_a_link_fault_use_a_proxy() -> None:
    with closing(Proxy(KafkaFraming())) as proxy:
        shared = lab(proxy)
        cell = Cell("postgres", "exactly-once", "two-phase", faults=("after-commit:kill",))
        with open_links(cell, shared) as links:
            assert (links.kafka.bootstrap_servers, links.environment, links.proxies) == ("127.0.0.1:1", {}, {})
        with open_links(replace(cell, faults=("after-commit:cut-link:3",)), shared) as links:
            assert links.kafka.bootstrap_servers == f"127.0.0.1:{proxy.port}"
            assert (links.environment, links.proxies) == ({}, {link_to("kafka"): proxy})
        with open_links(replace(cell, faults=("after-commit:lose-postgres-answer",)), shared) as links:
            (between,) = links.proxies.values()
            (dsn,) = links.environment.values()
            assert links.kafka.bootstrap_servers == "127.0.0.1:1"
            assert {"host=127.0.0.1", f"port={between.port}", "password=secret", "dbname=here"} <= set(dsn.split())
