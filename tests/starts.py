"""Starts of a real pipeline that are refused, or go on after an accepted loss."""

from __future__ import annotations

import sys
import time

from oncebench.processes import child
from oncebench.processes.child import Child
from oncebench.record.json_lines import read_lines
from pipeline.config import PipelineConfig, write_config
from tests.pipelines import WAIT_S, Fixture
from tests.waiting import wait_for


def start_once(fixture: Fixture, config: PipelineConfig, *options: str) -> Child:
    """Starts a pipeline that is not started again when it ends."""
    path = fixture.folder / f"job-{time.time_ns()}.json"
    write_config(config, path)
    command = [sys.executable, "-m", "pipeline", str(path), *options]
    return child.start("the pipeline", command, path.with_suffix(".log"), env=fixture.lab.environment())


def refusal(fixture: Fixture, config: PipelineConfig, *options: str) -> str:
    """The last line of a start that is refused."""
    with start_once(fixture, config, *options) as started:
        assert started.wait(WAIT_S), f"it goes on:\n{child.tail(started.log)}"
    said = started.log.read_text()
    assert started.returncode == 2, said
    assert "Traceback" not in said
    return next(line for line in reversed(said.splitlines()) if line.startswith("refused to start: "))


def accepted(fixture: Fixture, config: PipelineConfig, said: str) -> None:
    """Starts with the loss at the end of a refusal, until the input is read.

    `said` is the refusal, or the text of the loss alone.
    """
    text = said.rsplit(": ", 1)[-1]
    with start_once(fixture, config, "--accept-gap", text) as started:
        run_until(fixture, config, started)
    assert text in {
        line["text"] for line in read_lines(config.record / "progress.jsonl").items if line["kind"] == "gap"
    }


def catch_up(fixture: Fixture, config: PipelineConfig) -> None:
    """Runs a pipeline until the input is read."""
    with start_once(fixture, config) as started:
        run_until(fixture, config, started)


def run_until(fixture: Fixture, config: PipelineConfig, started: Child) -> None:
    wait_for_input(fixture, config, started)
    started.stop_gently(WAIT_S)
    assert started.returncode == 0, child.tail(started.log)


def wait_for_input(fixture: Fixture, config: PipelineConfig, started: Child) -> None:
    """Waits until Spark's commit log has the whole input."""
    ends = fixture.input_ends()

    def done() -> bool:
        assert started.alive, f"it ended:\n{child.tail(started.log)}"
        lines = [line for line in read_lines(config.record / "progress.jsonl").items if line["kind"] == "batch"]
        return bool(lines) and lines[-1]["end_offsets"] == ends

    wait_for("the pipeline to catch up", done)
