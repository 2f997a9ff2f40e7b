"""SIGTERM to every process of a job ends the job with exit code 0.

A service manager sends the signal in this way.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from oncebench.lab.lab import Lab
from oncebench.processes.child import Child, tail
from oncebench.record.json_lines import read_lines
from pipeline.config import PipelineConfig
from tests.pipelines import WAIT_S, Fixture, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def all_of(child: Child) -> None:
    """systemd's KillMode=control-group."""
    for pid in child.members():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def names(child: Child) -> set[str]:
    found = set()
    for pid in child.members():
        with suppress(psutil.Error):
            found.add(psutil.Process(pid).name())
    return found


@pytest.mark.parametrize(
    ("guarantee", "variant"),
    [
        ("at-most-once", "claim"),
        pytest.param("exactly-once", "two-phase", marks=pytest.mark.slow),
        pytest.param("exactly-once", "idempotent", marks=pytest.mark.slow),
        pytest.param("at-least-once", "acknowledged", marks=pytest.mark.slow),
    ],
)
def test_sigterm_to_the_whole_job_in_a_batch_ends_it_after_this_batch(
    lab: Lab, tmp_path: Path, guarantee: str, variant: str
) -> None:
    fixture = Fixture(lab, tmp_path)
    # The job stands still when the first signal comes, inside a batch that it has claimed or decided.
    config = fixture.config(guarantee, variant, "after-decision:stop:600@batch=1", max_events_per_batch=40)
    fixture.send(record for number in range(60) for record in session(f"s{number}"))
    with fixture.pipeline(config) as supervisor:
        supervisor.start()
        child = supervisor.child
        assert child is not None
        # Nobody asks the supervisor meanwhile, which would continue the job.
        wait_for("the job to stand still", lambda: child.stands_still(child.pid))
        all_of(child)
        child.thaw()
        for _ in range(2):  # an impatient operator repeats it
            time.sleep(0.1)
            all_of(child)
        assert child.wait(60.0), tail(child.log)
        wait_for("its JVM and workers to be gone", lambda: not child.members())
        child.kill_session()
        assert child.returncode == 0, tail(child.log)
    done = {int(path.name) for path in (config.checkpoint / "commits").glob("[0-9]*")}
    assert 1 in done
    assert delivered(config) <= done
    assert guarantee == "at-least-once" or begun(config) <= done


def delivered(config: PipelineConfig) -> set[int]:
    """The batches that the sink has taken."""
    return {line["batch"] for line in read_lines(config.record / "progress.jsonl").items if line["kind"] == "sink"}


def begun(config: PipelineConfig) -> set[int]:
    """The batches with a claim or a decision."""
    names = [path.name for path in (config.checkpoint / "journal").glob("*-*.json")]
    return {int(name.split("-")[1].split(".")[0]) for name in names if name.startswith(("claim", "decision"))}


MOMENTS: dict[str, Callable[[Child], bool]] = {
    "the journal is open": lambda child: any((child.log.parents[1] / "..").resolve().glob("checkpoint/journal/*")),
    "the JVM starts": lambda child: "java" in names(child),
    # The job waits for an answer of the JVM. Its client takes the signal's exception for a broken connection.
    "workers warm up": lambda child: any(
        '"started"' in progress.read_text() for progress in child.log.parents[1].glob("progress.jsonl")
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("to_all", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["to all", "to the job"])
def test_sigterm_during_a_start_ends_it_before_it_is_finished(
    lab: Lab, tmp_path: Path, moment: str, to_all: bool
) -> None:
    fixture = Fixture(lab, tmp_path)
    config = fixture.config("exactly-once", "two-phase")
    with fixture.pipeline(config) as supervisor:
        supervisor.start()
        child = supervisor.child
        assert child is not None
        wait_for(moment, lambda: MOMENTS[moment](child))
        all_of(child) if to_all else child.send(signal.SIGTERM)
        assert child.wait(WAIT_S), tail(child.log)
        wait_for("its JVM and workers to be gone", lambda: not child.members())
        child.kill_session()
        assert child.returncode == 0, tail(child.log)
    progress = read_lines(config.record / "progress.jsonl").items
    assert not [line for line in progress if line["kind"] == "running"], "the start went on until its query ran"
