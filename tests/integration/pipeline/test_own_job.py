"""The job of docs/pipeline_as_template.md keeps its promise.

The job is taken from the page, run, and killed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from oncebench.lab.lab import Lab
from oncebench.processes.child import tail
from tests.integration.pipeline.own_job import NONE, WAIT_S, Own, ended, order
from tests.waiting import wait_for

ORDERS, WAVES = 400, 3  # a kill after each wave but the last


@pytest.mark.slow
def test_the_job_of_the_page_writes_each_order_once_however_often_it_is_killed(lab: Lab, tmp_path: Path) -> None:
    own = Own(lab, tmp_path)
    for wave in range(WAVES):
        before, sent = len(own.visible()), ORDERS * (wave + 1)
        own.send(range(ORDERS * wave, sent))
        with own.start(wave) as job:
            wait_for("a new order", lambda before=before: len(own.visible()) > before, [job])  # type: ignore[misc]
            if wave < WAVES - 1:
                job.kill_session()  # its last batch is written, and rarely in Spark's commit log
                continue
            wait_for("all orders", lambda sent=sent: len(own.visible()) == sent, [job])  # type: ignore[misc]
            wait_for("what was set aside", lambda: len(own.set_aside()) == len(NONE) * WAVES, [job])
            job.stop_gently(WAIT_S)
            assert job.returncode == 0, tail(job.log)
    assert own.visible() == Counter(f"o-{number}" for number in range(ORDERS * WAVES))
    rows = {row["order_id"]: row for row in map(json.loads, own.read("checked"))}
    assert rows == {f"o-{number}": order(number) for number in range(ORDERS * WAVES)}


@pytest.mark.slow
def test_a_column_that_the_query_lacks_is_refused_by_name(lab: Lab, tmp_path: Path) -> None:
    own = Own(lab, tmp_path)
    ends_with(tmp_path, 'rows.drop("note").repartition(4, "order_id")')
    code, said = ended(own)
    assert code == 2
    assert "column 'note' of the query in pipeline/query.py is missing; pipeline/rows.py has string" in said


@pytest.mark.slow
def test_a_job_whose_record_stands_on_a_full_disk_writes_on_batch_after_batch(lab: Lab, tmp_path: Path) -> None:
    own = Own(lab, tmp_path)
    record = tmp_path / "state" / "record"
    record.mkdir(parents=True)
    (record / "progress.jsonl").symlink_to("/dev/full")
    with own.start(0) as job:
        for sent in (ORDERS, ORDERS * 2):  # in two batches at least: Spark's commit log has the first of them
            own.send(range(sent - ORDERS, sent))
            wait_for("all orders", lambda sent=sent: len(own.visible()) == sent, [job])  # type: ignore[misc]
        job.stop_gently(WAIT_S)
        assert job.returncode == 0, tail(job.log)
    assert own.visible() == Counter(f"o-{number}" for number in range(ORDERS * 2))
    assert job.log.read_text().count("progress.jsonl cannot be written (No space left on device)") == 1


@pytest.mark.slow
def test_checkpoint_and_journal_stand_in_one_folder_also_where_sparks_own_default_is_another_file_system(
    lab: Lab, tmp_path: Path
) -> None:
    own = Own(lab, tmp_path)
    other, path = tmp_path / "other", tmp_path / "job.json"
    other.mkdir()  # what a cluster's HDFS is, as far as paths go
    default = {
        "spark.hadoop.fs.defaultFS": "viewfs://other/",
        "spark.hadoop.fs.viewfs.mounttable.other.linkFallback": other.as_uri(),
    }
    checkpoint = tmp_path / "state" / "a checkpoint%20#1"  # what a URI would say in another way
    changes = {"spark": default, "checkpoint": str(checkpoint.relative_to(tmp_path))}
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    own.send(range(ORDERS))
    with own.start(0) as job:
        wait_for("all orders", lambda: len(own.visible()) == ORDERS, [job])
        job.stop_gently(WAIT_S)
    assert not list(other.rglob("offsets"))
    assert {"journal", "offsets", "commits"} <= {each.name for each in checkpoint.iterdir()}


def ends_with(folder: Path, expression: str) -> None:
    path = folder / "pipeline" / "query.py"
    path.write_text(path.read_text().replace('rows.repartition(config.partitions, "order_id")', expression))


@pytest.mark.parametrize("variant", ["two-phase", pytest.param("idempotent", marks=pytest.mark.slow)])
def test_a_query_without_a_shuffle_is_refused_before_it_writes_a_row(lab: Lab, tmp_path: Path, variant: str) -> None:
    own = Own(lab, tmp_path, variant=variant)
    ends_with(tmp_path, "rows")
    own.send(range(100))
    code, said = ended(own)
    assert code == 2
    assert 'End the query with `rows.repartition(4, "order_id")`' in said
    assert own.visible() == {}


@pytest.mark.slow
def test_a_query_with_more_tasks_than_partitions_is_refused(lab: Lab, tmp_path: Path) -> None:
    own = Own(lab, tmp_path, partitions=2)
    ends_with(tmp_path, 'rows.repartition(8, "order_id")')
    own.send(range(100))
    code, said = ended(own)
    assert code == 2
    assert "ends in 8 tasks" in said
    assert own.visible() == {}


@pytest.mark.slow
def test_a_job_without_marks_per_task_takes_more_tasks_than_partitions(lab: Lab, tmp_path: Path) -> None:
    own = Own(lab, tmp_path, partitions=2, guarantee="at-least-once", variant="acknowledged")
    ends_with(tmp_path, "rows")  # a task per partition of the input
    own.send(range(ORDERS))
    with own.start(0) as job:
        wait_for("all orders", lambda: len(own.visible()) == ORDERS, [job])
        job.stop_gently(WAIT_S)
        assert job.returncode == 0, tail(job.log)


def test_a_setting_that_would_have_tasks_tried_again_is_refused(lab: Lab, tmp_path: Path) -> None:
    own = Own(lab, tmp_path)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"spark": {"spark.task.maxFailures": "4"}}))
    code, said = ended(own)
    assert code == 2
    assert "refused to start: the guarantees rest on spark.task.maxFailures" in said
