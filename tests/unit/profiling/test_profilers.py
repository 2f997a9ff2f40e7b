"""Profilers attach once, their errors end no run, and none outlives its run.

Shell scripts stand in for the profilers.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from oncebench.downloads.async_profiler import AsyncProfiler
from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.profiling.profilers import Profilers, Tools
from oncebench.profiling.stacks import Stack
from tests.waiting import gone, wait_for

# A driver with a JVM and two worker daemons; only their command lines matter.
PIPELINE = """
import subprocess, sys, time
subprocess.Popen(["java", "-c", "import time; time.sleep(600)"], executable=sys.executable)
for _ in range(2):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "pipeline.spark.workers"])
print("ready", flush=True)
time.sleep(600)
"""
SAMPLE = 'while [ "$1" ]; do case "$1" in -f|--output) out="$2";; esac; shift; done; '
WRITES = SAMPLE + 'echo "f;g 3" > "$out"'


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Child]:
    with process.start("the pipeline", [sys.executable, "-c", PIPELINE], tmp_path / "pipeline.log") as child:
        wait_for("the pipeline", lambda: "ready" in child.log.read_text() and len(child.members()) == 4)
        yield child


def tools(folder: Path, jvm: str = WRITES, python: str = WRITES) -> Tools:
    for name, script in {"asprof": jvm, "py-spy": python}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return Tools(AsyncProfiler(folder / "asprof", folder / "agent.so", folder / "a.jar"), folder / "py-spy")


def run_to_end(profilers: Profilers, pipeline: Child) -> None:
    def ended() -> bool:
        profilers(pipeline)
        return all(pid not in psutil.pids() for pid in pids)

    profilers(pipeline)
    pids = [child.pid for child in profilers._children.values()]
    wait_for("the profilers", ended)


def test_the_samples_of_every_daemon_are_read(tmp_path: Path, pipeline: Child) -> None:
    with Profilers(tools(tmp_path), tmp_path / "profile", 1) as profilers:
        run_to_end(profilers, pipeline)
        samples = profilers.samples()
    stack = Stack(("f", "g"), 3)
    assert (samples.jvm, samples.driver, samples.workers) == ((stack,), (stack,), (stack, stack))
    assert str(samples) == "JVM 3, Python driver 3, Python workers 6"


def test_an_idle_process_has_no_samples(tmp_path: Path, pipeline: Child) -> None:
    idle = "echo 'Error: No stack counts found' >&2; exit 1"
    with Profilers(tools(tmp_path, python=idle), tmp_path / "profile", 1) as profilers:
        run_to_end(profilers, pipeline)
        assert profilers.samples().workers == ()


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("Permission Denied: Try running again with elevated permissions", "kernel.yama.ptrace_scope=0"),
        ("Operation not permitted", "SYS_PTRACE"),
        ("Process 12 not found", "logs/pipeline.log"),
        ("Error: Failed to get process executable name\n0: No such file\n 7: start_thread", "logs/pipeline.log"),
        ("it broke", "Run the command again"),
    ],
)
def test_a_failure_says_what_to_do_and_only_after_the_run(
    tmp_path: Path, pipeline: Child, error: str, remedy: str
) -> None:
    failing = f"echo '{error}' >&2; exit 1"
    with Profilers(tools(tmp_path, jvm=failing), tmp_path / "profile", 1) as profilers:
        run_to_end(profilers, pipeline)
        with pytest.raises(UserError, match=f"async-profiler failed: {error.splitlines()[0]}.*{remedy}"):
            profilers.samples()


def test_a_process_that_ends_during_the_profile_is_an_error(tmp_path: Path, pipeline: Child) -> None:
    ending = f"{WRITES}; echo 'py-spy> Stopped sampling because process exited'"
    with Profilers(tools(tmp_path, python=ending), tmp_path / "profile", 1) as profilers:
        run_to_end(profilers, pipeline)
        with pytest.raises(UserError, match=r"Python driver failed: .* process exited.*logs/pipeline\.log"):
            profilers.samples()


def test_no_profiler_outlives_the_run(tmp_path: Path, pipeline: Child) -> None:
    endless = "sleep 600"
    with Profilers(tools(tmp_path, endless, endless), tmp_path / "profile", 1) as profilers:
        profilers(pipeline)
        pids = [pid for child in profilers._children.values() for pid in child.members()]
        assert len(profilers._children) == 4
        with pytest.raises(UserError, match="did not end before the run did"):
            profilers.samples()
    wait_for("their end", lambda: not [pid for pid in pids if not gone(pid)])


def test_a_pipeline_without_workers_is_not_profiled(tmp_path: Path) -> None:
    with (
        process.start("the pipeline", ["sleep", "600"], tmp_path / "log") as lonely,
        Profilers(tools(tmp_path), tmp_path / "profile", 1) as profilers,
    ):
        profilers(lonely)
        with pytest.raises(UserError, match="the profilers did not start"):
            profilers.samples()
    assert not (tmp_path / "profile").exists()


def test_a_missing_py_spy_is_reported_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    with pytest.raises(MissingEnvironment, match=r"pip install '\.\[profile\]'") as refused:
        Tools.find()
    assert refused.value.exit_code == ExitCode.ENVIRONMENT
