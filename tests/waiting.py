"""Waits for conditions of real processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import psutil

from oncebench.processes.child import Child, tail

if TYPE_CHECKING:
    from oncebench.run.attempts.supervisor import Supervisor

# A start of Spark takes 5 to 10 s on idle cores, and minutes next to other tests. Pytest's limit per test is 300 s: a
# lower limit names the condition.
LIMIT_S = 240.0
PAUSE_S = 0.05  # some conditions start a consumer, which takes longer than this pause


def wait_for(
    what: str, done: Callable[[], bool], watch: Sequence[Supervisor | Child] = (), limit_s: float = LIMIT_S
) -> None:
    """Waits for a condition.

    Args:
        what: the condition in words.
        done: whether it holds.
        watch: supervisors that go on supervising meanwhile, and children that must live.
        limit_s: how long to wait.

    Raises:
        AssertionError: the time is over, or a child has ended.
    """
    deadline = time.monotonic() + limit_s
    children = [each for each in watch if isinstance(each, Child)]
    while not done():
        assert all(child.alive for child in children), f"it ended while the test waited for {what}\n{said(children)}"
        assert time.monotonic() < deadline, f"waited {limit_s:g} s for {what}\n{said(children)}"
        for each in watch:
            if not isinstance(each, Child):
                each.watch()
        time.sleep(PAUSE_S)


def said(children: Iterable[Child]) -> str:
    """The first errors of each child's log, and its end: Spark's end alone can be one long plan."""
    found = []
    for child in children:
        lines = child.log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Exception" in line or "Error" in line]
        found += [f"{child.name}:", *errors[:5], "...", tail(child.log)]
    return "\n".join(found)


def gone(pid: int) -> bool:
    """Whether a process has ended, also if nobody has reaped it yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
