"""Children and sessions: all that was started ends, and nothing else is touched."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from oncebench.errors import ExitCode, MissingEnvironment
from oncebench.processes import child as process
from oncebench.processes import sessions
from oncebench.processes.child import Child
from oncebench.processes.guardian import guardian
from oncebench.processes.sessions import NotOursError, Session, start_time
from tests.waiting import gone, wait_for

# as a generator that waits for Kafka's answers
ENDS_AT_THE_SECOND = """
import signal, sys
seen = []
def stop(*_):
    seen.append(1)
    if len(seen) == 2:
        sys.exit(9)
signal.signal(15, stop)
print("ready", flush=True)
while True:
    signal.pause()
"""
# a tree as pyspark makes it: a daemon in a process group of its own, and a worker below it
TREE = """
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)
    os.fork()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Child]:
    with process.start("tree", [sys.executable, "-c", TREE], tmp_path / "log") as child:
        wait_for("three processes to be ready", lambda: child.log.read_text().count("ready") == 3)
        yield child


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as popen:
        yield popen
        popen.kill()


def test_a_process_stands_still_while_it_is_stopped_or_gone(tree: Child, stranger: "subprocess.Popen[bytes]") -> None:
    worker = max(tree.members())
    assert not tree.stands_still(worker)
    os.kill(worker, signal.SIGSTOP)
    wait_for("the worker to be stopped", lambda: tree.stands_still(worker))
    assert not tree.stands_still(tree.pid)
    tree.thaw()
    wait_for("the worker to go on", lambda: not tree.stands_still(worker))
    assert tree.stands_still(stranger.pid), "another process may have its number"
    tree.kill_session()
    assert tree.stands_still(worker)


MAIN_THREAD_GONE = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no such state")
def test_checking_a_child_does_not_reap_it(tmp_path: Path) -> None:
    code = [sys.executable, "-c", MAIN_THREAD_GONE]
    with process.start("half dead", code, tmp_path / "log") as child:
        state = Path(f"/proc/{child.pid}/stat")
        wait_for("its first thread to end", lambda: ") Z" in state.read_text())
        assert child.alive, "its other thread still runs"
        os.kill(child.pid, signal.SIGKILL)
        wait_for("it to end", lambda: not child.alive)
        assert child.returncode is None
        assert state.exists(), "its number must not become another's"


def test_killing_a_session_reaches_other_process_groups(tree: Child) -> None:
    pids = tree.members()
    assert len(pids) == 3
    assert len({os.getpgid(pid) for pid in pids}) == 2
    tree.kill_session()
    assert all(map(gone, pids))
    assert tree.returncode == -signal.SIGKILL


def test_a_session_that_keeps_forking_is_killed_completely(tmp_path: Path) -> None:
    with process.start("forks", ["sh", "-c", "while :; do sleep 600 & done"], tmp_path / "log") as child:
        wait_for("some forks", lambda: len(child.members()) > 20)
        child.kill_session()
        assert sessions.members(child.session) == ()


def test_a_killed_leader_does_not_save_its_descendants(tree: Child) -> None:
    pids = tree.members()
    os.kill(tree.pid, signal.SIGKILL)
    wait_for("the leader to die", lambda: not tree.alive)
    assert len(tree.members()) == 2
    tree.kill_session()
    assert all(map(gone, pids))


def test_an_ended_child_keeps_its_pid_until_its_session_is_killed(tmp_path: Path) -> None:
    child = process.start("short", ["sh", "-c", "exit 7"], tmp_path / "log")
    assert child.wait(10)
    assert not child.alive
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    before = child.returncode
    child.kill_session()
    assert (before, child.returncode) == (None, 7)
    assert not psutil.pid_exists(child.pid)


def test_a_reused_pid_is_never_signalled(stranger: "subprocess.Popen[bytes]") -> None:
    stale = Session(stranger.pid, start_time(stranger.pid) - 1)
    for act in (sessions.freeze, sessions.thaw, sessions.members, lambda session: sessions.kill(session, 1)):
        with pytest.raises(NotOursError):
            act(stale)
    assert not sessions.leader_alive(stale)
    assert stranger.poll() is None
    assert psutil.Process(stranger.pid).status() != psutil.STATUS_STOPPED


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_a_process_that_proc_hides_is_no_member(tree: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `hidepid=1`, /proc lists the processes of other users and refuses their files."""
    read = Path.read_text

    def hidden(path: Path, *args: str, **more: str) -> str:
        if path == Path("/proc/1/stat"):
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", hidden)
    assert 1 in psutil.pids()
    assert len(tree.members()) == 3


def test_a_killed_child_is_not_continued(tree: Child, stranger: "subprocess.Popen[bytes]") -> None:
    tree.kill_session()
    tree.session = Session(stranger.pid, start_time(stranger.pid) - 1)  # as if its pid had been given away
    tree.thaw()


def test_the_end_of_the_context_leaves_no_child(tmp_path: Path) -> None:
    pids: tuple[int, ...] = ()
    with (
        pytest.raises(ZeroDivisionError),
        process.start("tree", [sys.executable, "-c", TREE], tmp_path / "log") as child,
    ):
        wait_for("three processes", lambda: len(child.members()) == 3)
        pids = child.members()
        raise ZeroDivisionError
    assert len(pids) == 3
    assert all(map(gone, pids))


def test_a_gentle_stop_lets_the_child_end_by_itself(tmp_path: Path) -> None:
    script = "import signal, sys; signal.signal(15, lambda *_: sys.exit(9)); print('ready', flush=True); signal.pause()"
    with process.start("gentle", [sys.executable, "-c", script], tmp_path / "log") as child:
        wait_for("the handler", lambda: "ready" in child.log.read_text())
        child.stop_gently(10)
        assert child.returncode == 9


def test_a_gentle_stop_kills_what_ignores_it(tmp_path: Path) -> None:
    script = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    with process.start("stubborn", [sys.executable, "-c", script], tmp_path / "log") as child:
        wait_for("the handler", lambda: "ready" in child.log.read_text())
        child.stop_gently(0.2)
        assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("again_after_s", "code"), [(0.2, 9), (None, -signal.SIGKILL)])
def test_a_second_signal_comes_before_the_kill(tmp_path: Path, again_after_s: float | None, code: int) -> None:
    with process.start("waiting", [sys.executable, "-c", ENDS_AT_THE_SECOND], tmp_path / "log") as child:
        wait_for("the handler", lambda: "ready" in child.log.read_text())
        child.stop_gently(1.0 if again_after_s is None else 20.0, again_after_s)
        assert child.returncode == code


def test_a_gentle_stop_reaches_a_stopped_child(tmp_path: Path) -> None:
    with process.start("frozen", ["sleep", "600"], tmp_path / "log") as child:
        child.freeze()
        child.stop_gently(10)
        assert child.returncode == -signal.SIGTERM


def test_freeze_stops_every_member_and_thaw_continues_them(tree: Child) -> None:
    everybody = tree.members()
    assert len(everybody) > 1
    tree.freeze()
    wait_for("all to stop", lambda: all(psutil.Process(p).status() == "stopped" for p in everybody))
    tree.thaw()
    wait_for("all to go on", lambda: all(psutil.Process(p).status() == "sleeping" for p in everybody))


def test_the_output_of_a_child_is_appended_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "child.log"
    for word in ("one", "two"):
        with process.start("speaker", ["sh", "-c", f"echo {word}; echo {word} >&2"], log) as child:
            assert child.wait(10)
    assert log.read_text() == "one\none\ntwo\ntwo\n"


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[Child] = []

    def start() -> None:
        started.append(process.start("sleeper", ["sleep", "600"], tmp_path / "log"))
        wait_for("it to run", lambda: psutil.Process(started[0].pid).name() == "sleep")

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with started[0] as child:
        time.sleep(0.2)  # nothing can be waited for: the kernel's signal would have come at once
        assert child.alive


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        MissingEnvironment, match="broker can't be started: there is no program no-such-program"
    ) as caught:
        process.start("broker", ["no-such-program"], tmp_path / "log")
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_a_program_that_cannot_run_is_reported_in_the_log(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x00not a program")
    program.chmod(0o755)
    with process.start("odd", [program], tmp_path / "log") as child:
        assert child.wait(10)
    assert child.returncode == 126
    assert f"{program} can't be run: Exec format error" in child.log.read_text()


def test_a_child_gets_default_signals_private_files_and_its_environment(tmp_path: Path) -> None:
    script = "touch made; grep SigIgn /proc/self/status; echo $SAID"
    env = {"PATH": os.environ["PATH"], "SAID": "hello"}
    with process.start("child", ["sh", "-c", script], tmp_path / "log", env=env, cwd=tmp_path) as child:
        assert child.wait(10)
    said = child.log.read_text().split()
    ignored = int(said[1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1
    assert said[2] == "hello"
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600


def test_the_messages_of_pipelines_are_found_by_how_their_lines_begin(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = "stopped: an earlier attempt\n"
    log.write_text(f"{before}it stopped: no\nrefused to start: no Java\nrefused to start\n\nstopped: NoKafka: away\n")
    assert process.messages_in(log, len(before)) == ["refused to start: no Java", "stopped: NoKafka: away"]
    assert process.messages_in(log) == ["stopped: an earlier attempt", *process.messages_in(log, len(before))]


def test_a_suspended_session_that_has_ended_is_watched_no_longer(stranger: "subprocess.Popen[bytes]") -> None:
    session = Session(stranger.pid, start_time(stranger.pid))
    process.suspend(psutil.Process(stranger.pid))
    assert guardian()._watched[stranger.pid] == session
    stranger.kill()
    stranger.wait()
    process.forget_ended()
    assert stranger.pid not in guardian()._watched


def test_a_later_session_of_an_ended_one_s_pid_stays_watched(stranger: "subprocess.Popen[bytes]") -> None:
    suspended = psutil.Process(stranger.pid)
    process.suspend(suspended)
    stranger.kill()
    stranger.wait()
    later = Session(stranger.pid, 1)
    guardian().watch(later)
    try:
        with pytest.raises(psutil.NoSuchProcess):
            process.resume(suspended)
        assert guardian()._watched[stranger.pid] == later
    finally:
        guardian().unwatch(later)


def test_a_process_that_has_ended_is_not_suspended_and_not_watched(stranger: "subprocess.Popen[bytes]") -> None:
    ended = psutil.Process(stranger.pid)
    stranger.kill()
    stranger.wait()
    with pytest.raises(psutil.NoSuchProcess):
        process.suspend(ended)
    assert stranger.pid not in guardian()._watched
