"""Use of a component counts from the mark on, also for processes that started later or died."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from oncebench.observe.resources import Sampler, Use, _Amount
from tests.waiting import wait_for

SPIN = "import time\nwhile time.process_time() < {cpu_s}: pass\nprint(flush=True)\ninput()"
WAIT_S = 30.0


def spinning(cpu_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SPIN.format(cpu_s=cpu_s)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def spun(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    child.stdout.readline()


def ended(child: subprocess.Popen[str]) -> None:
    child.communicate("\n", timeout=WAIT_S)


def sampled(sampler: Sampler, owner: str, cpu_s: float) -> None:
    """Waits until the sampler has seen so much use of an owner."""
    wait_for(f"{owner}'s use", lambda: owner in sampler.uses() and sampler.uses()[owner].cpu_s >= cpu_s)


def test_only_use_after_the_mark_counts() -> None:
    children: dict[int, str] = {}
    with Sampler(lambda: dict(children), lambda owner, _name, _leader: owner) as sampler:
        early = spinning(0.6)
        children[early.pid] = "early"
        spun(early)
        sampler.mark()
        late = spinning(0.3)
        children[late.pid] = "late"
        spun(late)
        sampled(sampler, "late", 0.25)
        ended(late)
        ended(early)
    uses = sampler.uses()
    assert uses["early"].cpu_s < 0.3
    assert 0.25 <= uses["late"].cpu_s < 2.0  # the kernel counts in ticks of 10 ms
    assert uses["early"].peak_rss_bytes > 1_000_000


def test_a_session_leader_belongs_to_its_parents_component() -> None:
    code = (
        "import subprocess, sys\n"
        f"child = [sys.executable, '-c', {SPIN.format(cpu_s=0.3)!r}]\n"
        "subprocess.run(child, start_new_session=True)"
    )
    command = [sys.executable, "-c", code]
    sessions: dict[int, str] = {}
    with Sampler(lambda: dict(sessions), lambda owner, _name, _leader: owner) as sampler:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        sessions[server.pid] = "postgres"
        spun(server)
        sampled(sampler, "postgres", 0.25)
        ended(server)


# One child runs until it is asked to end, so samples see it. Five others start and end between two samples.
SERVER = """
import subprocess, sys
spin = [sys.executable, "-c", "import time\\nwhile time.process_time() < float(__import__('sys').argv[1]): pass"]
sampled_spin = [sys.executable, "-c", {spin!r}]
sys.stdin.readline()
sampled = subprocess.Popen(sampled_spin, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
sampled.stdout.readline()
print(flush=True)
sys.stdin.readline()
for _ in range(5):
    subprocess.run([*spin, "0.1"], start_new_session=True)
sampled.communicate(b"\\n")
print(flush=True)
sys.stdin.readline()
"""


def test_children_between_two_samples_count_once() -> None:
    command = [sys.executable, "-c", SERVER.format(spin=SPIN.format(cpu_s=0.4))]
    sessions: dict[int, str] = {}
    with Sampler(lambda: dict(sessions), lambda owner, _name, _leader: owner) as sampler:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        sessions[server.pid] = "postgres"
        assert server.stdin is not None

        def next_step() -> None:
            print(file=server.stdin, flush=True)
            spun(server)

        next_step()
        sampler.mark()  # the sampled child has used its 0.4 s
        next_step()
        sampler._sample()
        used = sampler.uses()["postgres"].cpu_s
        ended(server)
    assert 0.45 <= used < 0.85  # five children of 0.1 s, which no sample may have seen, and their start
    assert 0 <= sampler.uses()["postgres"].cpu_s - used < 0.1  # the end of the server changes nothing


# Two children in their own sessions: the first runs all the time, the second spins and ends when asked.
PAIR = """
import subprocess, sys
idle = [sys.executable, "-c", "print(flush=True); input()"]
spin = [sys.executable, "-c", {spin!r}]
pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}}
first = subprocess.Popen(idle, **pipes)
first.stdout.readline()
second = subprocess.Popen(spin, **pipes)
second.stdout.readline()
print(flush=True)
sys.stdin.readline()
second.communicate(b"\\n")
print(flush=True)
sys.stdin.readline()
first.communicate(b"\\n")
"""


def test_a_child_that_ends_during_a_sample_counts() -> None:
    command = [sys.executable, "-c", PAIR.format(spin=SPIN.format(cpu_s=0.5))]
    sessions: dict[int, str] = {}
    left: list[bool] = []

    def naming(owner: str, _name: str, leader: bool) -> str:
        if left and not leader:  # the server has been looked at, and its second child has not
            left.clear()
            print(file=server.stdin, flush=True)
            spun(server)
        return owner

    with Sampler(lambda: dict(sessions), naming) as sampler:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        spun(server)
        sessions[server.pid] = "postgres"
        sampled(sampler, "postgres", 0.45)
        sampler._stop.set()
        sampler._thread.join()
        left.append(True)
        sampler._sample()
    assert not left
    assert sampler.uses()["postgres"].cpu_s >= 0.45
    ended(server)


# A child in the same session works as often as it is asked to, then ends; its parent waits for it, or says that it
# never will, and goes on.
WRITER = """
import os, signal, subprocess, sys
work = '''
import os, sys, time
for line in sys.stdin:
    until = time.process_time() + 0.2
    while time.process_time() < until: pass
    with open(sys.argv[1], "ab") as file:
        file.write(bytes({written}))
        os.fsync(file.fileno())
    print(flush=True)
'''
if {ignoring}:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}}
child = subprocess.Popen([sys.executable, "-c", work, {path!r}], **pipes)
for line in sys.stdin:
    if line == "work\\n":
        child.stdin.write(b"\\n")
        child.stdin.flush()
        child.stdout.readline()
    elif child.poll() is None:
        child.stdin.close()
        child.wait()
    print(flush=True)
"""
WRITTEN = 4_000_000


@pytest.mark.parametrize("ignoring", [False, True])
def test_a_childs_use_is_not_counted_again_for_its_parent(tmp_path: Path, ignoring: bool) -> None:
    code = WRITER.format(written=WRITTEN, ignoring=ignoring, path=str(tmp_path / "written"))
    sessions: dict[int, str] = {}

    def naming(_owner: str, _name: str, leader: bool) -> str:
        return "parent" if leader else "child"

    with Sampler(lambda: dict(sessions), naming) as sampler:
        parent = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        sessions[parent.pid] = "parent"

        def asked(what: str) -> None:
            print(what, file=parent.stdin, flush=True)
            spun(parent)

        asked("work")
        sampler.mark()
        asked("work")
        sampler._sample()
        before = sampler.uses()
        asked("end")
        sampler._sample()
        sampler._sample()
        after = sampler.uses()
        sampler.end()
        ended(parent)
    if not before["child"].written_bytes:
        pytest.skip(f"{tmp_path} is on no disk")
    for seen in (before, after):
        assert WRITTEN <= seen["child"].written_bytes < 1.5 * WRITTEN
        assert 0.15 <= seen["child"].cpu_s < 0.35  # twice 0.2 if what came before the mark counted
        assert seen["parent"].written_bytes < 0.1 * WRITTEN
        assert seen["parent"].cpu_s < 0.1


def test_use_after_the_end_does_not_count() -> None:
    children: dict[int, str] = {}
    with Sampler(lambda: dict(children), lambda owner, _name, _leader: owner) as sampler:
        first = spinning(0.1)
        children[first.pid] = "first"
        spun(first)
        sampler.end()
        late = spinning(0.1)
        children[late.pid] = "late"
        spun(late)
    ended(first)
    ended(late)
    assert set(sampler.uses()) == {"first", "suite"}
    assert sampler.uses()["first"].cpu_s >= 0.08


def test_use_counts_up_to_a_moment_between_two_samples() -> None:
    with Sampler(dict, lambda owner, _name, _leader: owner) as sampler:
        pass
    used = [{"worker": _Amount(cpu_s, written)} for cpu_s, written in ((0.0, 0), (1.0, 100), (3.0, 100))]
    sampler._history = list(zip((1_000, 2_000, 3_000), used, strict=True))
    counted = [sampler.uses(until_us)["worker"] for until_us in (1_500, 2_000, 2_250, 3_000)]
    assert [(use.cpu_s, use.written_bytes) for use in counted] == [(0.5, 50), (1.0, 100), (1.5, 100), (3.0, 100)]
    assert sampler.uses(9_000)["worker"].cpu_s == 3.0, "the last sample is the end"
    assert sampler.uses(1)["worker"].cpu_s == 0.0


def test_use_after_the_last_row_does_not_count() -> None:
    children: dict[int, str] = {}
    with Sampler(lambda: dict(children), lambda owner, _name, _leader: owner) as sampler:
        last_row_us = time.time_ns() // 1000
        late = spinning(0.3)
        children[late.pid] = "late"
        spun(late)
        sampled(sampler, "late", 0.25)
        ended(late)
    assert sampler.uses()["late"].cpu_s >= 0.25
    assert sampler.uses(last_row_us).get("late", Use()).cpu_s < 0.05


def test_a_sampler_that_failed_has_no_figures(caplog: pytest.LogCaptureFixture) -> None:
    failing = iter([{}, {}])  # the context and the mark take one sample each

    def sessions() -> dict[int, str]:
        return next(failing)

    with Sampler(sessions, lambda owner, _name, _leader: owner) as sampler:
        sampler.mark()
        wait_for("the failure", lambda: not sampler._thread.is_alive())
    assert sampler.uses() == {}
    assert "no processor time" in caplog.text
