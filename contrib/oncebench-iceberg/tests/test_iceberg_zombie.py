"""A driver that is stopped (SIGSTOP) before its commit.

It continues after its successor has committed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from iceberg_tables import Tables, marker

LIMIT_S = 120.0  # both processes import pyiceberg; on a busy machine that takes half a minute
# The driver of generation 1 writes the files of batch 0, stops itself before the commit, and then commits.
STOPPED = """
import os, signal, sys
from pathlib import Path
from iceberg_tables import EXACTLY_ONCE, Tables, marker
from oncebench_iceberg.catalogs.local import LocalPlace
from oncebench_iceberg.commit import Commits
from oncebench_iceberg.marker import Keys
from oncebench_iceberg.retried import RetriedAppend

kind, tables = sys.argv[1], Tables(LocalPlace(Path(sys.argv[2]), "shop.orders"))
stop = lambda: os.kill(os.getpid(), signal.SIGSTOP)
if kind == "retried":
    sink = RetriedAppend(tables.place, "job", 2, "one")
    sink.start(EXACTLY_ONCE, 1, [])
    sink.stage_commit(tables.files("a", "b"), marker(0))
    stop()
    sink.commit_staged()
else:
    class Stops(Commits):
        def _try_once(self, step, table):
            if step.files and kind == "compared":
                stop()
            return super()._try_once(step, table)

    driver = Stops(tables.catalog(), Keys("job"), "one", 1)
    driver.take()
    files = tables.files("a", "b")
    if kind == "written":
        stop()
    driver.append(files, marker(0))
print("committed")
"""


def run_stopped(tables: Tables, kind: str) -> subprocess.CompletedProcess[str]:
    """Runs a driver that stops; its successor commits the same batch before it continues."""
    command = [sys.executable, "-c", STOPPED, kind, str(tables.place.warehouse)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), child.communicate()[1]
        tables.started("two", 2).append(tables.files("a", "b"), marker(0, "two"))
        assert tables.keys() == ["a", "b"]
        os.kill(child.pid, signal.SIGCONT)
        out, err = child.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(command, child.returncode, out, err)
    finally:
        child.kill()
        child.wait()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["written", "compared"])
def test_a_driver_that_wakes_after_its_successor_is_refused(tables: Tables, kind: str) -> None:
    ended = run_stopped(tables, kind)
    assert "committed" not in ended.stdout
    assert "AnotherDriver: the table property oncebench.driver.job" in ended.stderr
    assert tables.keys() == ["a", "b"]


@pytest.mark.slow
def test_the_broken_twin_doubles_the_batch_of_its_successor(tables: Tables) -> None:
    ended = run_stopped(tables, "retried")
    assert (ended.stdout, ended.returncode) == ("committed\n", 0)
    assert tables.keys() == ["a", "a", "b", "b"]
