"""A gentle stop reaches its end, whichever signal asked for it.

A reader that has stopped reading does not hold it up.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from oncebench.run.interrupt import gently

# A run without a pipeline: it shows its phases on stderr, waits for the stop, and prints its end to stdout. (A table on
# a terminal takes `print` over.)
RUN = """
import os
import sys
import time

from oncebench.live.streams import outlive_readers
from oncebench.live.status import LOADING, READING, STOPPING, RunStatus
from oncebench.live.view import view
from oncebench.run.interrupt import gently

outlive_readers()
with gently() as interrupted, view("cell") as show:
    show(RunStatus(LOADING))
    os.write(1, b"began\\n")
    end = time.monotonic() + 20
    while not interrupted.is_set():  # as a run does; Python handles a signal that comes just before a wait after it
        assert time.monotonic() < end
        time.sleep(0.01)
    os.write(1, b"asked\\n")
    sys.stdin.readline()
    show(RunStatus(STOPPING))
    show(RunStatus(READING))
    os.write(1, b"report\\n")
"""
WAIT_S = 30  # Python's start on a busy machine takes seconds


@pytest.fixture(autouse=True)
def terminal_is_heard() -> Iterator[None]:
    """Tests that run under `nohup` ignore SIGHUP, and so do the processes that they start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@contextmanager
def running(stderr: int, *before: str) -> Iterator[subprocess.Popen[str]]:
    command = [*before, sys.executable, "-c", RUN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True) as run:
        try:
            assert line(run.stdout) == "began"
            yield run
        finally:
            run.kill()


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().rstrip("\n")


def ends_with_its_report(run: subprocess.Popen[str]) -> bool:
    return (run.communicate("\n", timeout=WAIT_S)[0], run.returncode) == ("report\n", 0)


def test_a_reader_of_the_log_that_ends_at_the_same_Ctrl_C_costs_no_report() -> None:
    reader, writer = os.pipe()
    with running(writer) as run:
        os.close(writer)
        os.close(reader)  # as `tee` does at its own SIGINT
        run.send_signal(signal.SIGINT)
        assert line(run.stdout) == "asked"
        assert ends_with_its_report(run)


def test_a_closed_terminal_asks_for_a_gentle_stop_however_often_it_says_so() -> None:
    terminal, end = pty.openpty()
    with running(end) as run:
        os.close(end)
        os.close(terminal)  # from now on each write to it is an EIO
        run.send_signal(signal.SIGHUP)
        assert line(run.stdout) == "asked"
        run.send_signal(signal.SIGHUP)
        assert ends_with_its_report(run)


def test_a_run_under_nohup_runs_on() -> None:
    with running(subprocess.DEVNULL, "nohup") as run:
        run.send_signal(signal.SIGHUP)
        run.send_signal(signal.SIGINT)
        assert line(run.stdout) == "asked"
        assert ends_with_its_report(run)


def test_a_second_Ctrl_C_ends_the_command_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), gently():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_a_signal_during_the_first_one_does_not_set_the_event_again() -> None:
    calls = []
    with gently() as requested:

        def interrupted_set() -> None:
            calls.append("set")
            if len(calls) == 1:
                signal.raise_signal(signal.SIGHUP)

        requested.set = interrupted_set  # type: ignore[method-assign]
        signal.raise_signal(signal.SIGHUP)
    assert calls == ["set"]


def test_a_stop_in_the_middle_of_another_line_is_said_and_raises_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class InsideItself:
        def write(self, _text: str) -> None:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    monkeypatch.setattr(sys, "stderr", InsideItself())
    with gently() as requested:
        signal.raise_signal(signal.SIGINT)
    assert isinstance(requested, threading.Event)
    assert requested.is_set()
    assert "press Ctrl-C again" in capfd.readouterr().err
