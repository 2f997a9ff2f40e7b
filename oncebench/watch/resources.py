"""What each component of a run costs the machine, asked of the operating system.

Promise: CPU seconds, peak memory and bytes that went to and came from the disk (cached reads are none) per component,
summed over its processes, also those that died. Of a server whose children lead sessions of their own (PostgreSQL's do)
also those count that lived between two samples: their parent waits for them, and the kernel adds their use to its. CPU
and bytes count from the last `mark`. What can go wrong: elsewhere a process's use between the last sample and its death
is missed (half a second at most); memory is the sum of resident sets, so pages that processes share are counted once
for each.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import psutil

# Often enough for what dies young, seldom enough to cost under 1 % of a core: 20 processes take 4 ms.
SAMPLE_S = 0.5
# What a child used that ends in the midst of a sample stands with its parent only in the next one: so the last sample
# is one in which no child was missed. Of a server whose sessions all end at once a few such samples are enough.
_LAST_LOOKS = 10


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
class _Seen:
    component: str
    cpu_s: float
    awaited_cpu_s: float  # of children that it has waited for; bytes are counted with theirs by the kernel
    written: int
    read: int
    parent: int | None  # of a process that leads a session of its own


_NOTHING = _Seen("", 0.0, 0.0, 0, 0, None)
_Identity = tuple[int, float]


class Sampler:
    """Samples processes in a thread of its own until it is left.

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
        self._seen: dict[_Identity, _Seen] = {}
        self._first: dict[_Identity, _Seen] = {}
        self._awaited: set[_Identity] = set()  # their parent has their use now, with what came before the mark
        self._peaks: dict[str, int] = {}
        self._sampling = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self.mark()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for _look in range(_LAST_LOOKS):
            missed = len(self._awaited)
            self._sample()
            if len(self._awaited) == missed:
                return

    def mark(self) -> None:
        """Counts CPU and bytes from now on; a process that starts later counts whole."""
        with self._sampling:
            self._take_sample()
            self._first = dict(self._seen)

    def uses(self) -> dict[str, Use]:
        """Use by component since the last mark (or since the sampler was entered); memory: the peak since it was."""
        totals: dict[str, Use] = {}
        with self._sampling:
            parents = {seen.parent for seen in self._seen.values()}
            for identity, seen in self._seen.items():
                before = self._first.get(identity, _NOTHING)
                now = _NOTHING if identity in self._awaited else seen
                children_cpu_s = seen.awaited_cpu_s - before.awaited_cpu_s if identity[0] in parents else 0.0
                so_far = totals.get(seen.component, Use(peak_rss_bytes=self._peaks.get(seen.component, 0)))
                totals[seen.component] = Use(
                    so_far.cpu_s + now.cpu_s - before.cpu_s + children_cpu_s,
                    so_far.peak_rss_bytes,
                    so_far.written_bytes + now.written - before.written,
                    so_far.read_bytes + now.read - before.read,
                )
        return totals

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        with self._sampling:
            self._take_sample()

    def _take_sample(self) -> None:
        sessions = self._sessions()
        resident: dict[str, int] = {}
        alive: set[_Identity] = set()
        for process in psutil.process_iter():
            try:
                with process.oneshot():
                    session = os.getsid(process.pid)
                    owner, parent = sessions.get(session), None
                    if owner is None and session == process.pid:
                        parent = process.ppid()
                        owner = sessions.get(parent)
                    if owner is None:
                        continue
                    identity = (process.pid, process.create_time())
                    component = self._naming(owner, process.name(), process.pid in sessions)
                    times, memory = process.cpu_times(), process.memory_info().rss
                    moved = process.io_counters()
            except (psutil.Error, OSError):
                continue
            cpu_s, awaited_cpu_s = times.user + times.system, times.children_user + times.children_system
            self._seen[identity] = _Seen(component, cpu_s, awaited_cpu_s, moved.write_bytes, moved.read_bytes, parent)
            alive.add(identity)
            resident[component] = resident.get(component, 0) + memory
        pids = {pid for pid, _ in alive}
        gone = {identity for identity, seen in self._seen.items() if seen.parent in pids and identity not in alive}
        self._awaited = (self._awaited | gone) - alive
        for component, memory in resident.items():
            self._peaks[component] = max(self._peaks.get(component, 0), memory)
