"""Faults on real servers, in whole audited runs: exactly-once is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.errors import MissingEnvironment, UserError
from oncebench.lab.lab import Lab, open_lab
from oncebench.measure import measure
from oncebench.record.json_lines import read_lines
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.workdir import open_work_dir

pytestmark = [pytest.mark.integration, pytest.mark.spark]

# Small batches, so that each fault has its own batch.
SMALL = Cell("", EXACTLY_ONCE, "", rate=600.0, sessions=90, max_events_per_batch=300, warmup_s=0.0)


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that starts all of its servers, so that faults may break them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)
        with open_lab(tmp_path_factory.mktemp("fragile"), sinks={"kafka", "postgres"}) as lab:
            yield lab


# Five attempts of a pipeline take two minutes on an idle machine, and more than five with other tests at the same time.
@pytest.mark.timeout(900)
@pytest.mark.slow  # each takes two minutes or more
@pytest.mark.parametrize(
    ("sink", "variant", "faults", "noted"),
    [
        pytest.param(
            "kafka",
            "two-phase",
            ("after-prepare:kill-worker", "after-decision:hijack@after=2", "mid-commit:kill-broker@after=2",
             "after-commit:lose-offsets@after=2", "mid-write:stop-worker:1@after=2"),
            ("worker-killed", "hijacked", "broker-back", "refused", "worker-continued"),
            marks=pytest.mark.slow,
        ),
        (
            "postgres",
            "two-phase",
            ("mid-write:kill-session", "after-decision:kill-postgres@after=2", "after-prepare:repartition@after=2",
             "after-decision:end@after=2", "mid-write:stop-session:1@after=2", "after-prepare:stop-postgres:1@after=2"),
            ("session-killed", "postgres-back", "refused", "pipeline-stopped", "session-continued",
             "postgres-continued"),
        ),
        pytest.param(
            "kafka", "two-phase", ("mid-write:kill-executor",), ("executor-killed", "pipeline-failed"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "kafka", "two-phase", ("mid-write:fill-broker:30",), ("broker-halted", "broker-back"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["kafka", "postgres", "executor", "full broker"],
)  # fmt: skip
def test_exactly_once_survives_faults_of_servers_workers_and_checkpoint(
    fragile: Lab, tmp_path: Path, sink: str, variant: str, faults: tuple[str, ...], noted: tuple[str, ...]
) -> None:
    cell = replace(SMALL, sink=sink, variant=variant, faults=faults)
    try:
        require_possible([cell])
        with open_work_dir(tmp_path / "run") as work:
            report = measure(cell, fragile, work.path)
    except (UserError, MissingEnvironment) as error:
        if "small disk" not in str(error):
            raise
        pytest.skip(str(error))  # mounting needs root, and most containers forbid it
    assert [fault["hit"] for fault in report["faults"]] == [True] * len(faults)
    counts = report["rows"]["lost"], report["rows"]["duplicated"]
    assert (report["verdict"], *counts) == ("kept", 0, 0), (report["reasons"], report["anomalies"])
    assert report["deaths"]["unasked"] == 0
    events = {line["event"] for line in read_lines(tmp_path / "run" / "timeline.jsonl").items}
    assert set(noted) <= events


@pytest.mark.slow
def test_open_sessions_are_in_the_state_before_the_load_and_after_a_kill(fragile: Lab, tmp_path: Path) -> None:
    cell = replace(SMALL, sink="kafka", variant="two-phase", faults=("after-prepare:kill",), open_sessions=700)
    with open_work_dir(tmp_path / "run") as work:
        report = measure(cell, fragile, work.path)
    assert (report["verdict"], report["auditors"]["agree"]) == ("kept", True), report["reasons"]
    assert (report["sessions"]["unfinished"], report["rows"]["lost"]) == (700, 0)
    lines = read_lines(tmp_path / "run" / "progress.jsonl").items
    batches = [line for line in lines if line["kind"] == "batch" and line["input_rows"]]
    assert batches[0]["input_rows"] == 700  # more than the limit of a batch
    held = [line["state"][0]["numRowsTotal"] for line in batches]
    assert min(held) >= 700
    loaded_us = json.loads((tmp_path / "run" / "ledger" / "plan.json").read_text())["started_us"]
    assert batches[0]["t_us"] < loaded_us
    (fault,) = report["faults"]
    assert None not in {fault["recovery"][mark] for mark in ("detect", "restart", "first_visible", "replayed_rows")}
    assert fault["recovery"]["replayed_rows"] > 0
