"""What a batch opens, it closes: a job may run for months."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from oncebench.run.attempts.supervisor import Supervisor
from tests.pipelines import Fixture, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]

EARLY, LATE = 5, 35
# A task's socket that stays open would be two per batch. The JVM opens some more for its own threads meanwhile.
MOST_MORE = LATE - EARLY


def sockets_of_the_jvm(pipeline: Supervisor) -> int:
    assert pipeline.child is not None
    count = 0
    for pid in pipeline.child.members():
        with suppress(psutil.NoSuchProcess):  # a worker may end meanwhile
            if psutil.Process(pid).name() == "java":
                count += sum(is_socket(descriptor) for descriptor in Path("/proc", str(pid), "fd").iterdir())
    assert count, "a JVM has sockets"
    return count


def is_socket(descriptor: Path) -> bool:
    with suppress(FileNotFoundError):  # it may be closed meanwhile
        return str(descriptor.readlink()).startswith("socket:")
    return False


@pytest.mark.slow
def test_open_sockets_do_not_grow_with_the_batches(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "two-phase", max_events_per_batch=40)
    fixture.send(record for number in range(60) for record in session(f"s{number}"))
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        wait_for("the first batches", (config.checkpoint / "commits" / str(EARLY)).exists, [pipeline])
        early = sockets_of_the_jvm(pipeline)
        wait_for("later batches", (config.checkpoint / "commits" / str(LATE)).exists, [pipeline])
        assert sockets_of_the_jvm(pipeline) < early + MOST_MORE
