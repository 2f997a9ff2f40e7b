"""What each component of a run costs the machine, asked of the operating system.

Promise: CPU seconds, peak memory and bytes that went to and came from the disk (cached reads are none) per component,
summed over its processes, also those that died.
CPU and bytes count from the last `mark`, which a run sets when its load begins: start-up is nobody's price per event.
What can go wrong: a process's use between the last sample and its death is missed (half a second at most);
memory is the sum of resident sets, so pages that processes share are counted once for each.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import psutil

# Often enough for what dies young, seldom enough to cost under 1 % of a core: 20 processes take 4 ms.
SAMPLE_S = 0.5


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


@dataclass
class _Seen:
    component: str
    cpu_s: float
    written: int
    read: int


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
        self._seen: dict[tuple[int, float], _Seen] = {}
        self._first: dict[tuple[int, float], _Seen] = {}
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
        self._sample()

    def mark(self) -> None:
        """Counts CPU and bytes from now on; a process that starts later counts whole."""
        self._sample(baseline=True)

    def uses(self) -> dict[str, Use]:
        """Use by component since the last mark (or since the sampler was entered); memory: the peak since it was."""
        totals: dict[str, Use] = {}
        with self._sampling:
            for identity, seen in self._seen.items():
                before = self._first.get(identity, _Seen(seen.component, 0.0, 0, 0))
                so_far = totals.get(seen.component, Use(peak_rss_bytes=self._peaks.get(seen.component, 0)))
                totals[seen.component] = Use(
                    so_far.cpu_s + seen.cpu_s - before.cpu_s,
                    so_far.peak_rss_bytes,
                    so_far.written_bytes + seen.written - before.written,
                    so_far.read_bytes + seen.read - before.read,
                )
        return totals

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sample()

    def _sample(self, baseline: bool = False) -> None:
        with self._sampling:
            self._take_sample(baseline)

    def _take_sample(self, baseline: bool) -> None:
        sessions = self._sessions()
        resident: dict[str, int] = {}
        for process in psutil.process_iter():
            try:
                with process.oneshot():
                    session = os.getsid(process.pid)
                    owner = sessions.get(session)
                    if owner is None and session == process.pid:
                        owner = sessions.get(process.ppid())
                    if owner is None:
                        continue
                    identity = (process.pid, process.create_time())
                    component = self._naming(owner, process.name(), process.pid in sessions)
                    times, memory = process.cpu_times(), process.memory_info().rss
                    moved = process.io_counters()
            except (psutil.Error, OSError):
                continue
            seen = _Seen(component, times.user + times.system, moved.write_bytes, moved.read_bytes)
            self._seen[identity] = seen
            if baseline:
                self._first[identity] = seen
            resident[component] = resident.get(component, 0) + memory
        for component, memory in resident.items():
            self._peaks[component] = max(self._peaks.get(component, 0), memory)
