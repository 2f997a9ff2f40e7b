"""`python -m pipeline` ends with one line and code 2 at a mistake, with code 0 at a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.journal import Identity, open_journal
from pipeline.config import write_config
from tests.unit.pipeline.test_pipeline_config import config

PROGRAM = [sys.executable, "-m", "pipeline"]


NO_JAVA = {"JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"}


def started(folder: Path, changes: dict[str, Any], environment: dict[str, str] = NO_JAVA) -> subprocess.Popen[str]:
    """The pipeline with a sink that needs no server, and no Java for Spark."""
    path, base = folder / "job.json", config(folder, sink="files-parquet")
    write_config(base, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "output": {"output": str(folder / "out")}, **changes}))
    return subprocess.Popen([*PROGRAM, str(path)], stderr=subprocess.PIPE, text=True, env=environment)


def refusal(folder: Path, **changes: Any) -> str:
    """The only line that a refused start leaves."""
    pipeline = started(folder, changes)
    _, said = pipeline.communicate(timeout=60)
    assert pipeline.returncode == 2, said
    assert said.startswith("refused to start: ")
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("setting", ["record", "checkpoint"])
@pytest.mark.parametrize("place", ["file", "file/below", "/proc/none"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, setting: str, place: str) -> None:
    (tmp_path / "file").write_text("")
    said = refusal(tmp_path, **{setting: str(tmp_path / place)})
    assert f"{setting} is '{tmp_path / place}', and no file can be made there" in said
    assert "Make it a folder that this user can write" in said


@pytest.mark.parametrize("kafka", [{"nope.setting": "1"}, {"socket.timeout.ms": "abc"}])
def test_a_setting_that_kafkas_client_refuses_is_named(tmp_path: Path, kafka: dict[str, str]) -> None:
    said = refusal(tmp_path, kafka=kafka)
    assert next(iter(kafka)) in said
    assert "Correct it in `kafka` or `kafka_conf`" in said


def test_a_configuration_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000)
    command = [*PROGRAM, str(tmp_path / "deep.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot read the pipeline's configuration" in done.stderr


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    identity = Identity("mine", "files-parquet", "exactly-once", "two-phase", 2)
    journal = open_journal(config(tmp_path).checkpoint, identity)
    (journal.folder / "decision-000000003.0.json").write_text('{"batch": 3, "gen')
    assert "decision-000000003.0.json is damaged" in refusal(tmp_path)


def test_a_jvm_that_does_not_start_is_a_refusal_that_names_java_and_memory(tmp_path: Path) -> None:
    without = {"JAVA_HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}  # the shell that starts Java exists
    pipeline = started(tmp_path, {"spark": {"spark.driver.memory": "9000g"}}, without)
    _, said = pipeline.communicate(timeout=60)
    assert pipeline.returncode == 2, said
    assert "Traceback" not in said
    last = next(line for line in said.splitlines() if line.startswith("refused to start"))  # librdkafka logs after it
    assert last.startswith("refused to start: Spark's JVM did not start")
    assert "JAVA_HOME, here /nonexistent, must have Java 17" in last
    assert "the memory of spark.driver.memory, 9000g" in last


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_right_after_the_start_is_a_stop(tmp_path: Path, number: signal.Signals) -> None:
    pipeline = started(tmp_path, {})
    caught = Path("/proc", str(pipeline.pid), "status")
    while not _catches(caught.read_text(), number):
        time.sleep(0.001)
        assert pipeline.poll() is None
    pipeline.send_signal(number)
    _, said = pipeline.communicate(timeout=60)
    assert (pipeline.returncode, said) == (0, "")


def _catches(status: str, number: int) -> bool:
    """Whether a process has a handler for SIGTERM and for this signal.

    Python has no handler for SIGTERM by itself.
    """
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return all(caught >> (each - 1) & 1 for each in (signal.SIGTERM, number))
