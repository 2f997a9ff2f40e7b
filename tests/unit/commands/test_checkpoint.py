"""`--checkpoint`: an object store for a run's checkpoint, and what cannot go with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

pytest.importorskip("obstore", reason="needs the extra s3")

from oncebench.cli import cli
from oncebench.commands.shared.checkpoint import check_checkpoint
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.stores import objects
from oncebench.delivery.stores.choose import place_at
from oncebench.delivery.stores.objects import ENDPOINT
from oncebench.errors import ExitCode, UserError
from oncebench.experiments import workspace
from oncebench.faults import catalogue
from oncebench.jobs.object_store import ABORTABLE, MANAGER, refuse_unfit_manager, spark_settings
from oncebench.report.configuration import USUAL, run_kind_of
from oncebench.report.schema import Report
from oncebench.report.tables import fault_matrix, fault_text
from oncebench.report.tables.table import fault_markdown
from oncebench.report.titles import title
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.scenario.matrix.cells import chain, rows
from tests.unit.scenario.test_fault_matrix import fault, report

CELL = Cell("kafka", "exactly-once", "two-phase", checkpoint="s3://bucket/runs")


def test_a_cell_may_have_its_checkpoint_in_an_object_store() -> None:
    check_checkpoint(CELL)
    require_possible([replace(CELL, faults=("after-decision:kill", "before-decision:zombie"))])
    check_checkpoint(replace(CELL, checkpoint="", master="spark://host:7077", faults=("after-commit:roll-back",)))
    assert "--checkpoint s3://bucket/runs" in CELL.reproduce()
    assert CELL.title == "kafka exactly-once two-phase, healthy, checkpoint in an object store"
    many = replace(CELL, faults=("after-commit:kill@after=2",) * 9)
    assert many.brief == "kafka exactly-once two-phase, 9 faults, checkpoint in an object store"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"checkpoint": "/data/checkpoint"}, "takes an object store"),
        ({"checkpoint": "hdfs://name/cp"}, "a URI that is not supported"),
        ({"checkpoint": "s3://bucket"}, "must name a bucket and a folder"),
        ({"master": "spark://host:7077"}, "Take a local master"),
    ],
)
def test_a_cell_that_needs_a_folder_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        check_checkpoint(replace(CELL, **change))


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--sink", "kafka", "--guarantee", "exactly-once", "--checkpoint", CELL.checkpoint),
        ("compare", "mine.toml"),
        ("faults", "--sink", "kafka", "--family", "kills", "--checkpoint", CELL.checkpoint),
    ],
    ids=lambda words: words[0],
)
def test_a_store_that_does_not_answer_is_refused_before_a_server_starts(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(objects, "LIMIT_S", 0.5)
    monkeypatch.setattr(workspace, "open_lab", lambda *_: pytest.fail("a server was started"))
    for name, value in (("AWS_ACCESS_KEY_ID", "any"), ("AWS_SECRET_ACCESS_KEY", "any"), ("AWS_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    Path("mine.toml").write_text(
        f'sink = "kafka"\nguarantee = "exactly-once"\ncheckpoint = "{CELL.checkpoint}"\n', encoding="utf-8"
    )
    refused = CliRunner().invoke(cli, words).exception
    assert isinstance(refused, UserError), refused
    assert (refused.exit_code, "gave no answer" in str(refused)) == (ExitCode.ENVIRONMENT, True), refused


@pytest.mark.parametrize("fault", ["after-commit:roll-back", "after-prepare:fill-checkpoint:20"])
def test_a_fault_that_changes_a_folder_is_refused(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "cannot_mount", lambda: None)
    with pytest.raises(UserError, match="in an object store"):
        require_possible([replace(CELL, faults=(fault,))])


def test_the_fault_matrix_leaves_out_what_needs_a_folder() -> None:
    (row,) = (each for each in rows(["kafka"]) if each.support.variant == "two-phase")
    base = replace(CELL, sink="", guarantee="", variant="")
    assert chain(row, "kills", base) == chain(row, "kills")
    assert chain(row, "checkpoint", base) == ()


def test_runs_with_another_place_of_the_checkpoint_share_no_table() -> None:
    local = report(fault("mid-write:kill", lost=0))
    objects = cast("Report", local | {"config": CELL.as_json()})
    text = fault_text.markdown([local, objects], fault_matrix.cells_of([local, objects]))
    assert ["kills:" in text, "kills, checkpoint in an object store:" in text] == [True, True]
    lines = fault_markdown([local, objects]).splitlines()[2:]
    assert len(lines) == 2
    assert [run_kind_of(each) == USUAL for each in (local, objects)] == [True, False]
    assert title(objects) == f"{title(local)}, checkpoint in an object store"


def test_sparks_settings_name_the_store_of_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_at("s3://bucket/orders")
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9000")
    own = spark_settings(place)
    assert (own["spark.hadoop.fs.s3a.endpoint"], own[MANAGER]) == ("http://127.0.0.1:9000", ABORTABLE)
    assert own["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    monkeypatch.delenv(ENDPOINT)
    assert "spark.hadoop.fs.s3a.endpoint" not in spark_settings(place)
    assert spark_settings(place_at("/data/checkpoint")) == {}


def test_a_session_that_renames_is_refused() -> None:
    place = place_at("s3://bucket/orders")
    for manager in ("", "org.apache.spark.sql.FileSystemBased"):
        with pytest.raises(RefusedStart, match="which an object store lacks"):
            refuse_unfit_manager(manager, place)
    refuse_unfit_manager(ABORTABLE, place)
    refuse_unfit_manager("", place_at("/data/checkpoint"))
