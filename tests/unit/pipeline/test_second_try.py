"""Only the first attempt at a task writes; separate executors keep their secret."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark import TaskContext

from oncebench.delivery.errors import TaskTriedAgain, TooManyTasks
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.quarantine import Quarantine
from oncebench.delivery.tasks import CountTask, PassTask, WriteTask
from pipeline.config import PipelineConfig
from pipeline.failures import explain
from pipeline.spark.local_cluster import make_home
from pipeline.spark.session import settings

FAILPOINTS = Failpoints((), Path("/dev/null"), None)
QUARANTINE = Quarantine("quarantine", "in", {})
CONFIG = PipelineConfig(
    "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", "two-phase", "id", Path("c"), Path("r"),
    jars=("sink.jar",), driver_jars=("kafka.jar", "fs.jar"), jvm_options=("-Dsome=thing",),
)  # fmt: skip


class Untouched(Iterator[pa.RecordBatch]):
    """A writer that must not be called, with rows that must not be read."""

    def write(self, _task: Any, _rows: Any) -> tuple[dict[str, Any], dict[str, float]]:
        raise AssertionError("it wrote")

    def __next__(self) -> pa.RecordBatch:
        raise AssertionError("it read")


@pytest.fixture
def second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext(attemptNumber=1, partitionId=3)  # type: ignore[arg-type]  # as pyspark's worker makes it


@pytest.mark.usefixtures("second_try")
@pytest.mark.parametrize(
    "task",
    [
        WriteTask(7, 4, Untouched(), None, FAILPOINTS, QUARANTINE),
        WriteTask(7, 4, None, None, FAILPOINTS, QUARANTINE),
        CountTask(7, FAILPOINTS, QUARANTINE, None),
        PassTask(7, FAILPOINTS),
    ],
    ids=["a writer's", "one that drains", "one of a batch that is written whole", "one of Spark's own writer"],
)
def test_a_second_attempt_at_a_task_ends_the_batch_at_once(task: Any) -> None:
    with pytest.raises(TaskTriedAgain, match=r"batch 7, partition 3: Spark has started this task again \(attempt 2\)"):
        list(task(Untouched()))


@pytest.fixture
def third_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext(attemptNumber=0, partitionId=2)  # type: ignore[arg-type]


@pytest.mark.usefixtures("third_task")
def test_a_task_without_a_mark_ends_the_batch_at_once() -> None:
    with pytest.raises(
        TooManyTasks, match=r"batch 7: .* partition 2, but this pipeline keeps marks for 2 partitions only"
    ):
        list(WriteTask(7, 2, Untouched(), None, FAILPOINTS, QUARANTINE)(Untouched()))
    assert list(WriteTask(7, 2, None, None, FAILPOINTS, QUARANTINE)(iter(()))), "what is drained has no marks to keep"


@pytest.mark.usefixtures("third_task")
def test_any_number_of_tasks_writes_where_no_task_has_a_mark() -> None:
    class Counting:
        def write(self, task: Any, _rows: Any) -> tuple[dict[str, Any], dict[str, float]]:
            return {"partition": task.partition}, {}

    (made,) = WriteTask(7, None, Counting(), None, FAILPOINTS, QUARANTINE)(iter(()))
    assert json.loads(made["result"][0].as_py())["prepared"] == {"partition": 2}


def test_the_pipeline_reports_the_second_attempts_error() -> None:
    told = f"Job aborted.\n{TaskTriedAgain.__module__}.TaskTriedAgain: batch 7, partition 3: again\n\tat java"

    class Ours:
        def check_still_ours(self) -> None:
            """There is no other driver."""

    words = explain(RuntimeError(told), Ours())  # type: ignore[arg-type]
    assert (type(words), str(words)) == (TaskTriedAgain, "batch 7, partition 3: again")


def test_spark_is_set_to_try_nothing_again() -> None:
    told = settings(CONFIG)
    assert {name: told[name] for name in ("spark.task.maxFailures", "spark.stage.maxConsecutiveAttempts")} == {
        "spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1"
    }  # fmt: skip
    assert (told["spark.speculation"], told["spark.stage.ignoreDecommissionFetchFailure"]) == ("false", "false")


def test_only_separate_executors_get_the_drivers_jars_and_options() -> None:
    assert not any(name.startswith("spark.executor") for name in settings(CONFIG))
    told = settings(replace(CONFIG, master="local-cluster[2,1,1024]"))
    assert told["spark.executor.extraClassPath"] == "kafka.jar:fs.jar"
    assert "-Dsome=thing" in told["spark.executor.extraJavaOptions"]
    assert told["spark.authenticate"] == "true"


def test_each_home_has_a_new_private_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.setenv(name, "nowhere")
    secrets = []
    for name in ("one", "other"):
        home = tmp_path / name
        home.mkdir()
        make_home(home)
        assert (os.environ["SPARK_HOME"], os.environ["SPARK_CONF_DIR"]) == (str(home), str(home / "conf"))
        kept = home / "conf" / "spark-defaults.conf"
        assert kept.stat().st_mode & 0o077 == 0
        secrets.append(kept.read_text("ascii").split()[1])
        assert (home / "bin" / "spark-submit").samefile(Path(pyspark.__file__).parent / "bin" / "spark-submit")
        assert any((home / "jars").glob("spark-core_*.jar"))
    assert len(set(secrets)) == len(secrets)
    assert not any("secret" in name for name in settings(replace(CONFIG, master="local-cluster[2,1,1024]")))
