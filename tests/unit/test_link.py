"""What is done to the link: which request each act catches, what it notes, and that it leaves the link whole."""

from __future__ import annotations

import struct
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from oncebench.nemesis import link
from oncebench.nemesis.link import link_to
from oncebench.nemesis.stage import Stage
from oncebench.run.lab import Lab
from oncebench.run.links import open_links
from oncebench.scenario import Cell
from oncebench.services.framing import END_TXN, PRODUCE, KafkaFraming
from oncebench.services.proxy import Catch, Proxy
from oncebench.services.topics import Kafka
from tests.unit.nemesis_world import World, run

FENCED = struct.pack("!iixih", 11, 7, 0, 90)
COMMIT = b"Q" + struct.pack("!I", 11) + b"COMMIT\0"


class Link:
    """A proxy that is told of one request after the other; `passes`: those that come once the pipeline goes on."""

    def __init__(self, *passes: bytes) -> None:
        self.passes = passes
        self.said: list[str] = []

    def catch(self, catch: Catch) -> None:
        self.said.append("catch")
        for request in self.passes:
            if catch.wanted(request) and catch.request is None:
                catch.request, catch.answer, catch.over = request, FENCED, True

    def forget(self, _catch: Catch) -> None:
        self.said.append("forget")

    def cut(self) -> None:
        self.said.append("cut")

    def mend(self) -> None:
        self.said.append("mend")


def request(api_key: int) -> bytes:
    return struct.pack("!ihhi", 8, api_key, 4, 7)


def staged(folder: Path, proxy: Any, delivery: str = "exactly-once") -> tuple[World, Stage]:
    world = World(folder)
    stage = world.stage("link")
    stage.servers = {link_to("kafka"): proxy, link_to("postgres"): proxy}
    stage.config = replace(stage.config, delivery=delivery)
    return world, stage


@pytest.mark.parametrize(
    ("act", "delivery", "passes", "told"),
    [
        (link.late_commit, "exactly-once", request(END_TXN), ["commit-held", "commit-arrived"]),
        (link.lose_answer, "exactly-once", request(END_TXN), ["request-caught", "answer-lost"]),
        (link.lose_answer, "at-least-once", request(PRODUCE), ["request-caught", "answer-lost"]),
        (link.lose_postgres_answer, "exactly-once", COMMIT, ["request-caught", "answer-lost"]),
    ],
)
def test_each_act_catches_the_one_request_that_it_is_about(
    tmp_path: Path, act: Any, delivery: str, passes: bytes, told: list[str]
) -> None:
    proxy = Link(request(3), request(18), passes)
    world, stage = staged(tmp_path, proxy, delivery)
    run(act(stage, 2.0))
    assert (world.events, proxy.said) == (["pipeline-continued", *told], ["catch", "forget"])


@pytest.mark.parametrize("act", [link.late_commit, link.lose_answer, link.lose_postgres_answer])
def test_a_request_that_never_comes_makes_the_act_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Any
) -> None:
    monkeypatch.setattr(link, "COME_LIMIT_S", 0.0)
    proxy = Link(request(PRODUCE))
    world, stage = staged(tmp_path, proxy)
    run(act(stage, 2.0))
    assert (world.events, proxy.said) == (["pipeline-continued", "nemesis-idle"], ["catch", "forget"])


@pytest.mark.parametrize(
    ("act", "passes", "told"),
    [
        (link.late_commit, request(END_TXN), "commit-held"),
        (link.lose_answer, request(END_TXN), "request-caught"),
        (link.lose_postgres_answer, COMMIT, "request-caught"),
    ],
)
def test_a_request_that_was_caught_and_never_answered_makes_the_act_idle(
    tmp_path: Path, act: Any, passes: bytes, told: str
) -> None:
    class Silent(Link):
        def catch(self, catch: Catch) -> None:
            super().catch(catch)
            catch.answer = None

    world, stage = staged(tmp_path, Silent(passes))
    run(act(stage, 2.0))
    assert world.events == ["pipeline-continued", told, "nemesis-idle"]


@pytest.mark.parametrize("act", [link.late_commit, link.lose_answer, link.lose_postgres_answer])
def test_an_act_that_is_cut_short_lets_everything_pass(tmp_path: Path, act: Any) -> None:
    proxy = Link()
    _, stage = staged(tmp_path, proxy)
    acting = act(stage, 3600.0)
    next(acting)
    acting.close()
    assert proxy.said == ["catch", "forget"]


@pytest.mark.parametrize("cut_short", [False, True])
def test_a_cut_link_is_mended_also_when_the_run_ends_before(tmp_path: Path, cut_short: bool) -> None:
    proxy = Link()
    world, stage = staged(tmp_path, proxy)
    act = link.cut_link(stage, 3600.0 if cut_short else 0.001)
    next(act)
    assert (proxy.said, stage.held, world.all[0].thawed) == (["cut"], True, 1)
    act.close() if cut_short else run(act, looks=10**6)
    assert (proxy.said, stage.held) == (["cut", "mend"], False)


class Postgres:
    dsn = "postgresql://me:secret@127.0.0.1:5999/here"


def lab(proxy: Proxy) -> Lab:
    return Lab(Kafka("127.0.0.1:1"), cast("Any", None), (), servers={"postgres": Postgres()}, link=(proxy, 1))


def test_a_run_reaches_its_servers_through_a_proxy_only_where_a_fault_acts_on_the_link() -> None:
    with closing(Proxy(KafkaFraming())) as proxy:
        shared = lab(proxy)
        cell = Cell("postgres", "exactly-once", "two-phase", faults=("after-commit:kill",))
        with open_links(cell, shared) as links:
            assert (links.bootstrap_servers, links.environment, links.proxies) == ("127.0.0.1:1", {}, {})
        with open_links(replace(cell, faults=("after-commit:cut-link:3",)), shared) as links:
            assert links.bootstrap_servers == f"127.0.0.1:{proxy.port}"
            assert (links.environment, links.proxies) == ({}, {link_to("kafka"): proxy})
        with open_links(replace(cell, faults=("after-commit:lose-postgres-answer",)), shared) as links:
            (between,) = links.proxies.values()
            (dsn,) = links.environment.values()
            assert links.bootstrap_servers == "127.0.0.1:1"
            assert {"host=127.0.0.1", f"port={between.port}", "password=secret", "dbname=here"} <= set(dsn.split())
