"""What each component of a run costs the machine, asked of the operating system.

Promise: CPU seconds, peak memory and bytes that went to and came from the disk (cached reads are none) per component,
summed over its processes, also those that died or lived between two samples only: once a process has waited for a
child, the kernel adds what that used to its own (`wait_task_zombie`), and what was seen of the child is taken off
there. CPU and bytes count from the last `mark` to `end`. What can go wrong: what a process used between its last sample
and its death is missed where its parent died first, and otherwise is its parent's (half a second at most); memory is
the sum of resident sets, so pages that processes share are counted once for each.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import psutil

from oncebench.observe.procfs import ask

# Often enough for what dies young, seldom enough to cost little: 20 processes take 1 ms.
SAMPLE_S = 0.5
# CPU times are ticks of 10 ms told as floats.
_TICK_ERROR_S = 1e-6


@dataclass(frozen=True)
class Use:
    """What a component used: CPU seconds (user and system), highest resident memory, bytes written and read."""

    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    written_bytes: int = 0
    read_bytes: int = 0

    def as_json(self) -> dict[str, float | int]:
        """As it stands in a report."""
        return asdict(self) | {"cpu_s": round(self.cpu_s, 3)}


@dataclass(frozen=True)
class _Amount:
    """Of a process and the children that it has waited for."""

    cpu_s: float = 0.0
    written: int = 0
    read: int = 0

    def __add__(self, other: _Amount) -> _Amount:
        return _Amount(self.cpu_s + other.cpu_s, self.written + other.written, self.read + other.read)

    def __sub__(self, other: _Amount) -> _Amount:
        return _Amount(self.cpu_s - other.cpu_s, self.written - other.written, self.read - other.read)


@dataclass(frozen=True)
class _Seen:
    component: str
    used: _Amount
    awaited_cpu_s: float  # of `used`, what its children had used
    parent: int


_Identity = tuple[int, float]


class Sampler:
    """Samples processes in a thread of its own until `end`, or until it is left.

    Args:
        sessions: asked at each sample for the session ids and the component of each session's processes. A process that
            leads a session of its own belongs to its parent's (PostgreSQL's do).
        naming: (component of the session, process name, is the session's leader) -> component of the process.
    """

    def __init__(
        self,
        sessions: Callable[[], Mapping[int, str]],
        naming: Callable[[str, str, bool], str],
    ) -> None:
        self._sessions = sessions
        self._naming = naming
        self._seen: dict[_Identity, _Seen] = {}  # as each was seen last
        self._alive: set[_Identity] = set()
        self._inherited: dict[_Identity, _Amount] = {}  # of children that are in `_seen` too
        self._orphaned: dict[_Identity, float] = {}  # gone, not yet with its parent: what that had of unseen children
        self._before_mark: dict[_Identity, _Amount] = {}
        self._peaks: dict[str, int] = {}
        self._sampling = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self.mark()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Samples for the last time; what is used from now on counts no more."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._sample()

    def mark(self) -> None:
        """Counts CPU and bytes from now on; a process that starts later counts whole."""
        with self._sampling:
            self._take_sample()
            self._before_mark = {identity: self._own(identity) for identity in self._seen}

    def uses(self) -> dict[str, Use]:
        """Use by component since the last mark (or since the sampler was entered); memory: the peak since it was."""
        totals: dict[str, _Amount] = {}
        with self._sampling:
            for identity, seen in self._seen.items():
                used = self._own(identity) - self._before_mark.get(identity, _Amount())
                totals[seen.component] = totals.get(seen.component, _Amount()) + used
            return {
                name: Use(used.cpu_s, self._peaks.get(name, 0), used.written, used.read)
                for name, used in totals.items()
            }

    def _own(self, identity: _Identity) -> _Amount:
        return self._seen[identity].used - self._inherited.get(identity, _Amount())

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        with self._sampling:
            self._take_sample()

    def _take_sample(self) -> None:
        sessions = self._sessions()
        resident: dict[str, int] = {}
        now: dict[_Identity, _Seen] = {}
        for pid in psutil.pids():
            try:
                session = os.getsid(pid)
                if session != pid and session not in sessions:
                    continue  # nearly all are others': nothing is read of them
                told = ask(pid)
            except OSError:
                continue
            owner = sessions.get(session) or sessions.get(told.parent)
            if owner is None:
                continue
            identity = (pid, told.started)
            component = self._naming(owner, told.name, pid in sessions)
            used = _Amount(told.cpu_s + told.awaited_cpu_s, told.written_bytes, told.read_bytes)
            now[identity] = _Seen(component, used, told.awaited_cpu_s, told.parent)
            resident[component] = resident.get(component, 0) + told.rss_bytes
        self._inherit(now)
        self._seen.update(now)
        self._alive = set(now)
        for component, memory in resident.items():
            self._peaks[component] = max(self._peaks.get(component, 0), memory)

    def _inherit(self, now: Mapping[_Identity, _Seen]) -> None:
        """Take off each parent what its children had used, once it has waited for them: that shows in its CPU time."""
        by_pid = {identity[0]: identity for identity in now}
        for gone in self._alive - now.keys():
            parent = by_pid.get(self._seen[gone].parent)
            if parent in self._seen:
                self._orphaned[gone] = self._unseen_cpu_s(parent, self._seen[parent])
        for gone, before_s in list(self._orphaned.items()):
            child, parent = self._seen[gone], by_pid.get(self._seen[gone].parent)
            if gone in now or parent is None:  # it was there all the time, or nobody waits for it any more
                del self._orphaned[gone]
            elif self._unseen_cpu_s(parent, now[parent]) - before_s >= child.used.cpu_s - _TICK_ERROR_S:
                self._inherited[parent] = self._inherited.get(parent, _Amount()) + child.used
                del self._orphaned[gone]

    def _unseen_cpu_s(self, parent: _Identity, seen: _Seen) -> float:
        """Of children that it has waited for, what was not seen of them when they lived."""
        return seen.awaited_cpu_s - self._inherited.get(parent, _Amount()).cpu_s
