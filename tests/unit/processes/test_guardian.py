"""The guardian: the children die with the suite, whatever ends the suite."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncebench.processes.sessions import start_time
from tests import ROOT
from tests.waiting import gone, wait_for

SUITE = """
import os, sys, time
from pathlib import Path
from oncebench.processes import child as process
from oncebench.processes.guardian import guardian

TREE = '''
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)
    os.fork()
time.sleep(600)
'''

def tree(name):
    child = process.start(name, [sys.executable, "-c", TREE], Path(sys.argv[1]) / name)
    while len(child.members()) < 3:
        time.sleep(0.01)
    return child

child = tree("child")
{body}
print(guardian().pid, *child.members(), flush=True)
{end}
"""


class Suite:
    """A process that uses the suite's modules. `pids`: its guardian and its children."""

    def __init__(self, folder: Path, body: str, end: str) -> None:
        code = SUITE.format(body=body, end=end)
        command = [sys.executable, "-c", code, str(folder)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert self.popen.stdout is not None
        self.pids = [int(word) for word in self.popen.stdout.readline().split()]
        assert len(self.pids) >= 4, "the suite reports its guardian and its children"

    def all_gone(self) -> bool:
        return all(map(gone, self.pids))


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Callable[..., Suite]]:
    made: list[Suite] = []

    def make(body: str = "", end: str = "time.sleep(600)") -> Suite:
        made.append(Suite(tmp_path, body, end))
        return made[-1]

    yield make
    for one in made:
        one.popen.kill()
        one.popen.wait()
        assert one.popen.stdout is not None
        one.popen.stdout.close()
        wait_for("the clean-up", one.all_gone)


def test_a_killed_suite_leaves_no_child_and_no_guardian(suite: Callable[..., Suite]) -> None:
    killed = suite()
    assert len(killed.pids) == 4
    killed.popen.kill()
    wait_for("every child and the guardian to end", killed.all_gone)


def test_a_killed_suite_leaves_no_stopped_child(suite: Callable[..., Suite]) -> None:
    killed = suite("child.freeze()")
    killed.popen.kill()
    wait_for("every child and the guardian to end", killed.all_gone)


STOPPED_BACKEND = """
import psutil
SERVER = '''
import os, time
if (backend := os.fork()) == 0:
    os.setsid()
else:
    print(backend, flush=True)
time.sleep(600)
'''
log = Path(sys.argv[1]) / "server"
server = process.start("a server", [sys.executable, "-c", SERVER], log)
while not log.read_text():
    time.sleep(0.01)
backend = psutil.Process(int(log.read_text()))
while os.getsid(backend.pid) != backend.pid:
    time.sleep(0.01)
server.freeze()
process.suspend(backend)

class child:
    def members():
        return server.pid, backend.pid, server.pid
"""


def test_a_killed_suite_leaves_no_stopped_session_of_a_server(suite: Callable[..., Suite]) -> None:
    killed = suite(STOPPED_BACKEND)
    killed.popen.kill()
    wait_for("the guardian's work", killed.all_gone)


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "raise ZeroDivisionError", "os._exit(1)", "os.abort()"])
def test_a_suite_that_ends_without_cleanup_leaves_no_child(suite: Callable[..., Suite], end: str) -> None:
    ended = suite(end=end)
    ended.popen.wait(20)
    wait_for("every child and the guardian to end", ended.all_gone)


def test_a_Ctrl_C_does_not_end_the_guardian_before_the_suite(
    suite: Callable[..., Suite],
) -> None:
    running = suite()
    guardian = running.pids[0]
    assert os.getsid(guardian) == guardian
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guardian, number)
    running.popen.kill()
    wait_for("every child and the guardian to end", running.all_gone)


def test_a_killed_guardian_is_replaced_by_one_with_the_same_children(suite: Callable[..., Suite]) -> None:
    killed = suite(
        "guard = guardian(); first = child.members(); old = guard.pid; os.kill(old, 9); os.waitpid(old, 0)\n"
        "child = tree('second'); print(*first, end=' ')"
    )
    assert len(killed.pids) == 7
    killed.popen.kill()
    wait_for("every child and the guardian to end", killed.all_gone)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a death signal")
def test_without_guardian_a_killed_suite_ends_its_direct_child(suite: Callable[..., Suite]) -> None:
    killed = suite()
    guardian, child, *descendants = killed.pids
    os.kill(guardian, signal.SIGKILL)
    killed.popen.kill()
    wait_for("the child to end", lambda: gone(child))
    for pid in descendants:  # no process is left to do it
        os.kill(pid, signal.SIGKILL)


def test_a_fork_with_the_open_pipe_does_not_save_the_children(suite: Callable[..., Suite]) -> None:
    killed = suite("fork = os.fork()\nif fork == 0: time.sleep(600)\nprint(fork, end=' ', flush=True)")
    fork = killed.pids.pop(0)
    try:
        killed.popen.kill()
        wait_for("every child and the guardian to end", killed.all_gone)
        assert not gone(fork)
    finally:
        os.kill(fork, signal.SIGKILL)


# The guardian, whose parent has gone by the time that it asks, with a pipe that a fork of the parent holds open.
ORPHAN = """
import os
from oncebench.processes import guardian as guard

answers = iter([os.getppid()])
guard.os.getppid = lambda: next(answers, 1)
guard.main()
"""


def test_a_suites_last_message_is_read_after_its_death() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        told, tell = os.pipe()
        try:
            os.write(tell, f"watch {child.pid} {start_time(child.pid)}\n".encode())
            subprocess.run(
                [sys.executable, "-c", ORPHAN], stdin=told, stdout=subprocess.DEVNULL, cwd=ROOT, timeout=20, check=True
            )
            assert child.wait(10) == -signal.SIGKILL
        finally:
            child.kill()
            os.close(told)
            os.close(tell)


def test_only_sessions_that_are_still_ours_are_killed() -> None:
    with (
        subprocess.Popen(["sleep", "600"], start_new_session=True) as done,
        subprocess.Popen(["sleep", "600"], start_new_session=True) as other,
        subprocess.Popen(["sleep", "600"], start_new_session=True) as watched,
    ):
        lines = (
            f"watch {done.pid} {start_time(done.pid)}\n"
            f"watch {other.pid} {start_time(other.pid) - 1}\n"
            f"watch {watched.pid} {start_time(watched.pid)}\n"
            f"done {done.pid}\n"
        )
        try:
            command = [sys.executable, "-m", "oncebench.processes.guardian"]
            subprocess.run(command, input=lines, text=True, cwd=ROOT, timeout=20, check=True)
            assert watched.wait(10) == -signal.SIGKILL
            assert done.poll() is None
            assert other.poll() is None
        finally:
            for popen in (done, other, watched):
                popen.kill()
