"""Real pipelines start from the archive of classes, and also without it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from oncebench.downloads.cache import cache_dir
from oncebench.lab.lab import Lab
from oncebench.lab.spark import class_archive
from oncebench.lab.spark.class_archive import prepare_spark
from oncebench.lab.spark.executor_archive import prepare_executors
from oncebench.run.attempts.supervisor import Supervisor
from oncebench.servers.spark_cluster import start_spark_cluster
from tests.pipelines import Fixture, position, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def mapped(pipeline: Supervisor) -> set[str]:
    """Returns the files that the processes of a pipeline have mapped."""
    assert pipeline.child is not None
    return set().union(*map(files_of, pipeline.child.members()))


def files_of(pid: int) -> set[str]:
    """Returns the files that a process has mapped."""
    with suppress(psutil.NoSuchProcess):
        return {region.path for region in psutil.Process(pid).memory_maps()}
    return set()


def test_a_pipeline_starts_from_the_archive_of_its_classes(fixture: Fixture) -> None:
    def found() -> bool:
        return any(path.endswith("/classes.jsa") and str(cache_dir() / "spark") in path for path in mapped(pipeline))

    with fixture.pipeline(fixture.config("exactly-once", "two-phase")) as pipeline:
        pipeline.start()
        wait_for("the archive to be mapped", found, [pipeline])


@pytest.mark.slow
def test_a_pipeline_starts_with_a_damaged_archive(fixture: Fixture, tmp_path: Path) -> None:
    archive = tmp_path / "a folder" / "classes.jsa"
    archive.parent.mkdir()
    archive.write_bytes(b"not an archive")
    config = replace(fixture.config("exactly-once", "two-phase"), jvm_options=(f"-XX:SharedArchiveFile={archive}",))
    fixture.send(session("a-1"))
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        wait_for("the batch to be finished", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        assert str(archive) not in mapped(pipeline)


@pytest.mark.slow
def test_a_cluster_and_its_executors_start_from_an_archive(fixture: Fixture, tmp_path: Path) -> None:
    lab = fixture.lab
    start = prepare_executors(lab.java, lab.class_path, lab.environment())
    (option,) = start.options
    archive = option.partition("=")[2]
    with start_spark_cluster(tmp_path / "cluster", lab.java, 1, start=start) as cluster:
        assert archive in files_of(cluster.master.pid)
        config = replace(fixture.config("exactly-once", "two-phase"), master=cluster.address)
        with fixture.pipeline(config) as pipeline:
            pipeline.start()
            wait_for("an executor", lambda: bool(cluster.executors()), [pipeline])
            wait_for("its archive", lambda: any(archive in files_of(pid) for pid in cluster.executors()), [pipeline])


def test_an_archive_is_made_once_and_reused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lab.jvm_options, "the lab has made it"
    monkeypatch.setattr(class_archive, "_write_archive", lambda *_: pytest.fail("made again"))
    assert prepare_spark(lab.java, lab.class_path, lab.environment()) == lab.jvm_options
