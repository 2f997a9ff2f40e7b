"""The command that a failed run prints runs the same cell again."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.commands.run import asked_cell, run
from oncebench.commands.shared.failed_runs import FailedRuns
from oncebench.commands.shared.kafka import access_of
from oncebench.errors import UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.scenario.cell import Cell
from peers.headline.plan import ROWS, Row, cells, program_of
from tests.unit.peers.test_headline import asked_of

CELL = Cell("postgres", "exactly-once", "two-phase", rate=500.0, trigger_ms=200, faults=("after-commit:kill",))


def printed(failed: FailedRuns, cell: Cell) -> list[str]:
    """The words of the printed command, without `oncebench run`."""
    failed(cell, UserError("no room"))
    return shlex.split(failed.lines[-1].splitlines()[-1])


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCEBENCH_POSTGRES", raising=False)


def test_a_failed_run_prints_the_users_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "my conf"
    conf.write_text("client.rack=r1\n")
    kafka = KafkaAccess("b1:9092,b2:9092", str(conf), {"client.id": "a b"})
    monkeypatch.setenv("ONCEBENCH_POSTGRES", "host=db1 dbname=it password=secret")
    variable, *words = printed(FailedRuns(kafka), CELL)
    assert variable == "ONCEBENCH_POSTGRES=dbname=it host=db1"
    context = run.make_context("run", words[2:])
    given = context.params
    assert access_of(given["bootstrap_servers"], given["kafka_conf"], given["kafka_set"]) == kafka
    assert asked_cell(context, kafka) == CELL


def test_a_server_of_the_suite_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = FailedRuns()
    monkeypatch.setenv("ONCEBENCH_POSTGRES", "host=ours")  # as while our server is open
    words = printed(failed, CELL)
    assert words[:2] == ["oncebench", "run"]
    assert asked_cell(run.make_context("run", words[2:]), None) == CELL


def test_a_server_that_the_sink_does_not_use_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEBENCH_POSTGRES", "host=db1")
    assert printed(FailedRuns(), replace(CELL, sink="kafka"))[0] == "oncebench"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_failed_run_of_the_headline_names_the_program_of_its_engine(row: Row) -> None:
    for cell in cells([row], 1, 1):
        assert asked_of(row, printed(FailedRuns(program_of=program_of), cell)) == cell
