"""Cells that cannot run on executors elsewhere are refused before anything starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from oncebench.commands.run import run
from oncebench.errors import ExitCode, UserError
from oncebench.scenario import master_check
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.servers.sink_servers import service
from oncebench.sinks.registry import suite_sinks

CELL = Cell("kafka", "exactly-once", "two-phase")


@pytest.fixture
def master() -> Iterator[str]:
    """An address where something listens, which is all that is asked before a run."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"spark://127.0.0.1:{server.getsockname()[1]}"


def refusal(cell: Cell, ours: frozenset[str] | None = None) -> str:
    with pytest.raises(UserError) as refused:
        require_possible([cell], ours)
    assert refused.value.exit_code == ExitCode.USAGE
    return str(refused.value)


LOCAL_FILES = sorted(name for name, sink in suite_sinks().items() if sink.writes_local_files and not sink.kind.missing)


@pytest.mark.parametrize("sink", LOCAL_FILES)
def test_a_sink_that_declares_local_files_needs_a_local_master(master: str, sink: str) -> None:
    support = suite_sinks()[sink].kind.supports[0]
    cell = Cell(sink, support.guarantee, support.variant, master=master)
    said = refusal(cell)
    assert f"sink {sink} writes files on this machine" in said
    able = said.partition("Take one of: ")[2].split(", ")
    assert {"kafka", "postgres"} <= set(able)
    assert sink not in able
    assert master_check.why_not_on_cluster(replace(cell, master="local[2]")) is None


def test_sinks_with_a_server_run_on_a_cluster(master: str) -> None:
    require_possible([replace(CELL, master=master, faults=("after-commit:kill",))])
    require_possible([replace(CELL, sink="postgres", master=master)])


@pytest.mark.parametrize("fault", ["mid-write:kill", "after-prepare:kill", "before-prepare:stop:1"])
def test_a_tasks_failpoint_is_not_ours_to_stop_elsewhere(master: str, fault: str) -> None:
    said = refusal(replace(CELL, master=master, faults=(fault,)))
    assert "Or take one of: batch-start, before-decision, after-decision, mid-commit, after-commit" in said


def test_a_cluster_has_no_cores_for_a_second_pipeline(master: str) -> None:
    assert "so no successor can run" in refusal(replace(CELL, master=master, faults=("after-commit:zombie",)))


def test_a_master_that_does_not_answer_is_refused(master: str) -> None:
    assert "no Spark master answers at spark://127.0.0.1:1" in refusal(replace(CELL, master="spark://127.0.0.1:1"))


def test_a_cluster_elsewhere_needs_servers_of_ones_own(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_check, "driver_address", lambda _: "10.0.0.1")
    said = refusal(replace(CELL, sink="postgres", master=master))
    assert "cannot reach the kafka and the postgres of this run" in said
    assert "--bootstrap-servers, --postgres" in said
    require_possible([replace(CELL, master=master)], frozenset({"postgres"}))


def test_each_server_is_named_by_something_that_exists(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {option for param in run.params for option in param.opts}
    monkeypatch.setattr(master_check, "driver_address", lambda _: "10.0.0.1")
    for name, sink in suite_sinks().items():
        said = master_check.why_not_on_cluster(replace(CELL, sink=name, master=master)) or ""
        named_by = said.partition("Name servers of your own: ")[2].split(", ")
        for each in named_by if sink.traits.services else ():
            variables = {f"the variable {service(needed).variable}" for needed in sink.traits.services}
            assert each in options | variables
