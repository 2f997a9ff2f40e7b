"""A fault whose line in the timeline cannot be written still undoes what it did.

A server may be of other runs too.
"""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.faults import disk, link, process
from oncebench.faults import server as server_faults
from oncebench.faults.link import link_to
from oncebench.faults.replicas import one_broker
from oncebench.faults.replicas.roles import OUTPUT_LEADER
from tests.unit.faults.fake_pipeline import NOBODY, Server, World, run
from tests.unit.faults.replicas import test_one_broker


class Full(World):
    """A pipeline whose run has no room for its timeline."""

    def note(self, event: str, **_fields: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left", event)


def runs_full(world: World, fault: Any, server: Any) -> None:
    context = world.context("fault", server)
    context.servers = {**context.servers, link_to("kafka"): server, link_to("postgres"): server}
    with pytest.raises(OSError, match="no space left"):
        run(fault(context, 0.0), polls=10**6)
    assert not context.held


@pytest.mark.parametrize(
    ("fault", "does"),
    [
        (server_faults.kill_broker, ["kill", "start"]),
        (server_faults.kill_postgres, ["kill", "start"]),
        (server_faults.bounce_broker, ["stop", "start"]),
        (server_faults.stop_broker, ["pause", "resume"]),
        (server_faults.stop_postgres, ["pause", "resume"]),
        (server_faults.kill_session, ["wait_until_recovered"]),
        (link.cut_link, ["cut", "mend"]),
        (link.cut_postgres_link, ["cut", "mend"]),
    ],
)
def test_the_server_is_whole_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, does: list[str]
) -> None:
    session = SimpleNamespace(pid=NOBODY, kill=lambda: None)
    monkeypatch.setattr(server_faults.psutil, "Process", lambda _pid: SimpleNamespace(children=lambda: [session]))
    monkeypatch.setattr(server_faults, "_serves", lambda *_: True)
    server = Server()
    runs_full(Full(tmp_path), fault, server)
    assert server.said == does


def test_a_session_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Server(pid=NOBODY)
    monkeypatch.setattr(server_faults.psutil, "Process", lambda _pid: SimpleNamespace(children=lambda: [session]))
    monkeypatch.setattr(server_faults, "_serves", lambda *_: True)
    runs_full(Full(tmp_path), server_faults.stop_session, Server())
    assert session.said == ["suspend", "resume"]


@pytest.mark.parametrize(
    ("fault", "does"), [(partial(disk.fill_disk, folder=disk.OUTPUT), []), (disk.fill_broker_disk, ["restart"])]
)
def test_the_disk_has_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, does: list[str]) -> None:
    ballast = tmp_path / "ballast"
    monkeypatch.setattr(disk, "fill", lambda _place: ballast.touch() or ballast)
    broker = Server()
    runs_full(Full(tmp_path), fault, broker)
    assert (ballast.exists(), broker.said) == (False, does)


def test_no_process_stays_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_worker", lambda _context: 5)
    world = Full(tmp_path)
    runs_full(world, process.stop_worker, None)
    assert world.kept_stopped == set()


def test_a_leader_is_continued_although_the_others_do_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_leader: object) -> None:
        raise OSError("no broker answers")

    monkeypatch.setattr(one_broker, "_LOOK_S", 0.0)
    monkeypatch.setattr(one_broker.Leader, "successor", fail)
    cluster = test_one_broker.Cluster()
    context = world.context("stop-output-leader", cluster)
    with pytest.raises(OSError, match="no broker answers"):
        run(one_broker.stop_leader(context, 0.001, OUTPUT_LEADER), polls=10**6)
    assert [each for each in cluster.said if "2" in each] == ["pause 2", "resume 2"]
