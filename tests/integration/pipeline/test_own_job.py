"""The job of docs/pipeline_as_template.md keeps its promise: it is taken from the page, run, and killed."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from oncebench.lab.lab import Lab
from oncebench.processes import child
from oncebench.processes.child import tail
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.registry import SINKS
from tests import ROOT
from tests.reading import read_all
from tests.waiting import wait_for

WAIT_S = 120.0  # a start of Spark takes 5 to 10 s, and many times that beside other tests
ORDERS, WAVES = 400, 3  # a kill after each wave but the last
# Records that are no orders: the third costs nothing.
NONE = (b"no json", b"{}", b'{"order_id":"o","cents":0,"placed_at":"2026-11-25T08:00:00Z"}', None)


def blocks(language: str) -> list[str]:
    page = (ROOT / "docs" / "pipeline_as_template.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def copied(folder: Path, **settings: Any) -> Path:
    """The job of the page, with these settings in place of its own; of the project it finds the library alone."""
    (folder / "library").mkdir()
    (folder / "library" / "oncebench").symlink_to(ROOT / "oncebench")
    shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs" / "pipeline_as_template.md").read_text()
    for pattern in " ".join(re.findall(r"^rm (.+)$", page, re.MULTILINE)).split():
        for path in folder.glob(pattern):
            path.unlink()
    columns, query = blocks("python")
    rows, own = folder / "pipeline" / "rows.py", folder / "pipeline" / "query.py"
    imported, columns = columns.split("\n\n", 1)
    text = re.sub(r"^SCHEMA = .*?^ID = [^\n]*\n", lambda _: columns, rows.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert columns in text
    first = text.index("from pyspark.sql import")
    rows.write_text(f"{text[:first]}{imported}\n{text[first:]}")
    (kept,) = re.findall(r"^def records.*?(?=^def query)", own.read_text(), re.DOTALL | re.MULTILINE)
    head, body = query.split("def query", 1)
    own.write_text(f"{head}{kept}def query{body}")
    path = folder / "job.json"
    (of_the_page,) = blocks("json")
    path.write_text(json.dumps(json.loads(of_the_page) | settings))
    return path


def order(number: int) -> dict[str, Any]:
    """An order; every other one has no note."""
    note = None if number % 2 else "in a hurry"
    placed_at = f"2026-11-25T08:00:00.{number:06}Z"
    return {
        "order_id": f"o-{number}",
        "cents": 100 + number,
        "placed_at": placed_at,
        "items": ["a", None],
        "note": note,
    }


class Own:
    """Topics and a job of the page's kind between them."""

    def __init__(self, lab: Lab, folder: Path, **settings: Any) -> None:
        self.lab, self.folder = lab, folder
        self.servers = lab.kafka.bootstrap_servers
        self.topics = {name: lab.kafka.fresh_topic(name, number)
                       for name, number in (("orders", 4), ("checked", 2), ("bad", 1))}  # fmt: skip
        spark: Mapping[str, Any] = lab.spark([SINKS["kafka"]])
        copied(
            folder, bootstrap_servers=self.servers, input_topic=self.topics["orders"],
            output={"output": self.topics["checked"]}, quarantine_topic=self.topics["bad"],
            sink_id=self.topics["checked"], driver_jars=spark["driver_jars"],
            jvm_options=spark["jvm_options"], spark={}, **settings,
        )  # fmt: skip
        self._producer = Producer({"bootstrap.servers": self.servers})

    def start(self, number: int) -> child.Child:
        command = [sys.executable, "-m", "pipeline", "job.json"]
        log = self.folder / f"job-{number}.log"
        environment = {**self.lab.environment(), "PYTHONPATH": str(self.folder / "library")}
        return child.start("the job", command, log, cwd=self.folder, env=environment)

    def send(self, numbers: range) -> None:
        for number in numbers:
            self._producer.produce(self.topics["orders"], key=b"%d" % number, value=json.dumps(order(number)).encode())
        for value in NONE:
            self._producer.produce(self.topics["orders"], key=b"none", value=value)
        assert self._producer.flush(30) == 0

    def read(self, name: str) -> list[bytes]:
        return [value or b"" for value in read_all(KafkaReader(self.servers, self.topics[name])).value]

    def visible(self) -> Counter[str]:
        return Counter(str(json.loads(value)["order_id"]) for value in self.read("checked"))


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
            wait_for("what was set aside", lambda: len(own.read("bad")) >= len(NONE) * WAVES, [job])
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


def ended(own: Own) -> tuple[int | None, str]:
    """The exit code of a job that ends by itself, and what it said."""
    with own.start(0) as job:
        assert job.wait(WAIT_S), f"it goes on:\n{tail(job.log)}"
    return job.returncode, job.log.read_text()


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


def test_a_setting_that_would_have_tasks_tried_again_is_refused(lab: Lab, tmp_path: Path) -> None:
    own = Own(lab, tmp_path)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"spark": {"spark.task.maxFailures": "4"}}))
    code, said = ended(own)
    assert code == 2
    assert "refused to start: the guarantees rest on spark.task.maxFailures" in said
