"""A report says where its run was made, and times a load from when it was taken up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.python.audit import audit
from oncebench.record.streams import Lines
from oncebench.report import report
from oncebench.scenario.cell import Cell
from tests.unit.audit.audit_world import make_record, make_world

KAFKA = {"bootstrap_servers": "b1:9092,b2:9092"}


@pytest.mark.parametrize(
    ("facts", "before", "after"),
    [
        ({}, "", ""),
        ({"kafka": {**KAFKA, "own": True}}, "", ""),
        ({"kafka": {**KAFKA, "own": False}}, "", " --bootstrap-servers b1:9092,b2:9092"),
        ({"theirs": {"ONCEBENCH_POSTGRES": "host=db1 dbname=it"}}, "ONCEBENCH_POSTGRES='host=db1 dbname=it' ", ""),
    ],
)
def test_the_command_that_runs_it_again_names_the_servers_that_were_not_ours(
    facts: dict, before: str, after: str
) -> None:
    cell = Cell("kafka", "exactly-once", "two-phase")
    assert report._reproduce(cell, facts) == f"{before}{cell.reproduce()}{after}"


def test_a_report_does_not_tell_where_its_run_folder_was(tmp_path: Path) -> None:
    topics = {"input": "ob-1.in", "output": f"{tmp_path.resolve()}/sink/output"}
    assert report._without_folder(topics, tmp_path) == {"input": "ob-1.in", "output": "sink/output"}
    assert report._without_folder(None, tmp_path) is None
    died = {"event": "pipeline-failed", "t_us": 2, "exit_code": 1, "why": f"no {tmp_path.resolve()}/checkpoint"}
    record: Any = SimpleNamespace(path=tmp_path, timeline=SimpleNamespace(items=[died]), hits=SimpleNamespace(items=[]))
    assert [death["why"] for death in report._deaths(record)["each_unasked"]] == ["no checkpoint"]


def test_each_code_that_occurred_comes_with_its_rule_its_count_by_kind_and_its_examples() -> None:
    world = make_world(3, 1)
    told = report._anomaly_details(audit(make_record(world, [*world.rows[1:], replace(world.rows[5], partition=1)])))
    assert told["rules"] == {code: CATALOGUE[code].rule for code in ("LOSS", "TORN", "DUP", "SCAT")}
    assert told["splits"] == {
        "LOSS": {"whole-sessions": 0, "torn-sessions": 1}, "DUP": {"same-partition": 0, "other-partition": 1},
    }  # fmt: skip
    assert {code: len(examples) for code, examples in told["examples"].items()} == dict.fromkeys(told["rules"], 1)


def test_a_load_that_was_there_first_is_timed_from_the_life_that_took_it_up() -> None:
    running = [{"kind": "running", "t_us": t_us} for t_us in (1_000_000, 20_000_000)]  # the first took open sessions in
    record: Any = SimpleNamespace(progress=SimpleNamespace(items=running), plan=SimpleNamespace(started_us=10_000_000))
    cell = Cell("kafka", "exactly-once", "two-phase", rate="max")
    assert report._throughput(np.array([30_000_000]), record, cell) == {"events_per_s": 0.5, "sessions_per_s": 0.01}


def test_a_run_that_is_judged_elsewhere_keeps_the_machine_that_it_ran_on_and_an_older_one_takes_this_ones(
    tmp_path: Path,
) -> None:
    cell = Cell("kafka", "exactly-once", "two-phase")
    record = replace(make_record(make_world(2)), path=tmp_path, progress=Lines(()), cell={"cell": cell.as_json()})
    there = {"cpu": "of another machine", "commit": "abc"}
    told = report.make_report(record, cell, {}, {"run": "r", "environment": there})["environment"]
    assert (told["cpu"], told["commit"], "cores" in told) == ("of another machine", "abc", False)
    older = report.make_report(record, cell, {}, {"run": "r"})["environment"]
    assert older["cpu"] == report.environment()["cpu"]
