"""What a batch opens, it closes: a job may run for months."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from oncebench.run.supervisor import Supervisor
from tests.pipelines import Fixture, session, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]

EARLY, LATE = 5, 35
# A task's socket that stays open would be two per batch. The JVM opens some more for its own threads meanwhile.
MOST_MORE = LATE - EARLY


def sockets_of_the_jvm(pipeline: Supervisor) -> int:
    assert pipeline.child is not None
    (jvm,) = (pid for pid in pipeline.child.members() if psutil.Process(pid).name() == "java")
    links = (path.readlink() for path in Path("/proc", str(jvm), "fd").iterdir() if path.is_symlink())
    return sum(1 for link in links if str(link).startswith("socket:"))


def test_open_sockets_do_not_grow_with_the_batches(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "two-phase", max_events_per_batch=40)
    fixture.send(record for number in range(60) for record in session(f"s{number}"))
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        wait_for("the first batches", (config.checkpoint / "commits" / str(EARLY)).exists, [pipeline])
        early = sockets_of_the_jvm(pipeline)
        wait_for("later batches", (config.checkpoint / "commits" / str(LATE)).exists, [pipeline])
        assert sockets_of_the_jvm(pipeline) < early + MOST_MORE
