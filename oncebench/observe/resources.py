"""Samples how much CPU, memory and disk traffic each component of a run uses.

Promise: per component, CPU seconds, peak memory, and bytes written to and read from the disk (cached reads do not
count). Each figure is the sum over the component's processes. It includes processes that died, and processes that ran
only between two samples: when a process has waited for a child, the kernel adds the child's use to its own
(`wait_task_zombie`). The use that was sampled for the child is then subtracted from the parent. CPU and bytes count
from the last `mark` to `end`.

Failure modes: the use of a process between its last sample and its death (half a second at most) counts for its parent.
It is lost if the parent died first. Memory is the sum of resident sets, so shared pages count once per process.
"""

from __future__ import annotations

import logging
import os
import resource
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import psutil

from oncebench.observe.procfs import read_stats
from oncebench.sinks.reader import now_us

_log = logging.getLogger(__name__)

# Components of a run, by the names that reports and tables use.
PIPELINE, BROKER = "pipeline", "broker"
EXECUTORS = "executors"  # the Spark workers of the run's own cluster, with all executors
SUITE = "suite"  # this process: it samples, supervises the pipeline and shows the run
# Components that make the load and observe it. They are not part of the cost of a guarantee.
WATCHING = frozenset({"generator", "observer", SUITE})

# Short enough for short-lived processes, long enough to cost little: a sample of 20 processes takes 1 ms.
SAMPLE_S = 0.5
# CPU times are multiples of 10 ms, stored as floats.
_TICK_ERROR_S = 1e-6


@dataclass(frozen=True)
class Use:
    """Use of a component: CPU seconds (user and system), peak memory, bytes written and read."""

    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    written_bytes: int = 0
    read_bytes: int = 0

    def as_json(self) -> dict[str, float | int]:
        """The form in a report."""
        return asdict(self) | {"cpu_s": round(self.cpu_s, 3)}


@dataclass(frozen=True)
class _Amount:
    """Use of a process and of the children that it has waited for."""

    cpu_s: float = 0.0
    written: int = 0
    read: int = 0

    def __add__(self, other: _Amount) -> _Amount:
        return _Amount(self.cpu_s + other.cpu_s, self.written + other.written, self.read + other.read)

    def __sub__(self, other: _Amount) -> _Amount:
        return _Amount(self.cpu_s - other.cpu_s, self.written - other.written, self.read - other.read)

    def part(self, share: float) -> _Amount:
        return _Amount(self.cpu_s * share, round(self.written * share), round(self.read * share))


@dataclass(frozen=True)
class _Sample:
    component: str
    used: _Amount
    awaited_cpu_s: float  # the part of `used` that its children used
    parent: int


_Identity = tuple[int, float]


class Sampler:
    """Samples processes in its own thread until `end`, or until its context ends.

    Args:
        sessions: called for each sample; returns the component of each session id. A process that leads an unknown
            session belongs to the session of its parent (PostgreSQL's processes do).
        naming: (component of the session, process name, whether it leads the session) -> component of the process.
    """

    def __init__(
        self,
        sessions: Callable[[], Mapping[int, str]],
        naming: Callable[[str, str, bool], str],
    ) -> None:
        self._sessions = sessions
        self._naming = naming
        self._samples: dict[_Identity, _Sample] = {}  # the last one of each process
        self._alive: set[_Identity] = set()
        self._inherited: dict[_Identity, _Amount] = {}  # from children that have samples of their own
        self._orphaned: dict[_Identity, float] = {}  # dead, not yet added to its parent: the parent's unsampled CPU
        self._before_mark: dict[_Identity, _Amount] = {}
        self._own_s, self._own_before_mark_s = 0.0, time.process_time()
        self._history: list[tuple[int, Mapping[str, _Amount]]] = []  # (epoch µs, use since the mark) per sample
        self._peaks: dict[str, int] = {}
        self._sampling = threading.Lock()
        self._failed = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self.mark()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Takes the last sample. Later use does not count."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            if not self._failed:
                self._sample()

    def mark(self) -> None:
        """Starts counting CPU and bytes at zero. A process that starts later counts in full."""
        with self._sampling:
            self._take_sample()
            self._before_mark = {identity: self._own(identity) for identity in self._samples}
            self._own_before_mark_s = self._own_s
            self._history = [(self._history[-1][0], self._totals())]

    def uses(self, until_us: int | None = None) -> dict[str, Use]:
        """Use by component since the last mark. Memory is the peak since the sampler was entered.

        Empty if the sampler failed: processes may have died unseen.

        Args:
            until_us: count up to this time (epoch µs), in proportion between two samples; None: up to the last sample.
        """
        if self._failed:
            return {}
        with self._sampling:
            totals = self._totals() if until_us is None else self._until(until_us)
            return {
                name: Use(used.cpu_s, self._peaks.get(name, 0), used.written, used.read)
                for name, used in totals.items()
            }

    def _totals(self) -> Mapping[str, _Amount]:
        totals = {SUITE: _Amount(self._own_s - self._own_before_mark_s)}
        for identity, sample in self._samples.items():
            used = self._own(identity) - self._before_mark.get(identity, _Amount())
            totals[sample.component] = totals.get(sample.component, _Amount()) + used
        return totals

    def _until(self, until_us: int) -> Mapping[str, _Amount]:
        after = bisect_left(self._history, until_us, key=lambda moment: moment[0])
        if after in (0, len(self._history)):
            return self._history[min(after, len(self._history) - 1)][1]
        (early_us, early), (late_us, late) = self._history[after - 1 : after + 1]
        share = (until_us - early_us) / (late_us - early_us)
        return {
            name: (before := early.get(name, _Amount())) + (used - before).part(share) for name, used in late.items()
        }

    def _own(self, identity: _Identity) -> _Amount:
        return self._samples[identity].used - self._inherited.get(identity, _Amount())

    def _run(self) -> None:
        try:
            while not self._stop.wait(SAMPLE_S):
                self._sample()
        except Exception:
            self._failed = True
            _log.exception("The processes of this run could not be sampled, so its report has no processor time.")

    def _sample(self) -> None:
        with self._sampling:
            self._take_sample()

    def _take_sample(self) -> None:
        sessions = self._sessions()
        resident: dict[str, int] = {}
        now: dict[_Identity, _Sample] = {}
        for pid in psutil.pids():
            try:
                session = os.getsid(pid)
                if session != pid and session not in sessions:
                    continue  # nearly all processes are not ours, and are not read
                stats = read_stats(pid)
            except OSError:
                continue
            owner = sessions.get(session) or sessions.get(stats.parent)
            if owner is None:
                continue
            identity = (pid, stats.started)
            component = self._naming(owner, stats.name, pid in sessions)
            used = _Amount(stats.cpu_s + stats.awaited_cpu_s, stats.written_bytes, stats.read_bytes)
            now[identity] = _Sample(component, used, stats.awaited_cpu_s, stats.parent)
            resident[component] = resident.get(component, 0) + stats.rss_bytes
        self._inherit(now)
        self._samples.update(now)
        self._alive = set(now)
        resident[SUITE] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # the kernel reports KiB
        for component, memory in resident.items():
            self._peaks[component] = max(self._peaks.get(component, 0), memory)
        self._own_s = time.process_time()
        self._history.append((now_us(), self._totals()))

    def _inherit(self, now: Mapping[_Identity, _Sample]) -> None:
        """Subtracts from each parent what its children had used, once it has waited for them.

        The wait shows as a rise of the parent's CPU time for children.
        """
        by_pid = {identity[0]: identity for identity in now}
        for gone in self._alive - now.keys():
            parent = by_pid.get(self._samples[gone].parent)
            if parent in self._samples:
                self._orphaned[gone] = self._unsampled_cpu_s(parent, self._samples[parent])
        for gone, before_s in list(self._orphaned.items()):
            child, parent = self._samples[gone], by_pid.get(self._samples[gone].parent)
            if gone in now or parent is None:  # it is still alive, or no parent can wait for it
                del self._orphaned[gone]
            elif self._unsampled_cpu_s(parent, now[parent]) - before_s >= child.used.cpu_s - _TICK_ERROR_S:
                self._inherited[parent] = self._inherited.get(parent, _Amount()) + child.used
                del self._orphaned[gone]

    def _unsampled_cpu_s(self, parent: _Identity, sample: _Sample) -> float:
        """CPU seconds of awaited children that no sample of theirs had counted."""
        return sample.awaited_cpu_s - self._inherited.get(parent, _Amount()).cpu_s
