"""Measures how much processor time the observer costs the pipeline that it observes.

    python -m tools.observer_cost [WINDOWS] [SINK ...]

Takes four minutes per sink (default: 16 windows; kafka, postgres). Use a quiet machine: other load counts against the
window that it hits.

One long run has windows of WINDOW_S. In half of them the run is observed as usual. In the others the observer is
stopped, and nothing is sampled or polled. The order alternates (on, off, off, on). The pipeline's processor time in a
window is compared with the neighbouring window, which has the same load in the same JVM. Two separate runs would differ
by more than the effect, because each JVM compiles the code differently. The tool also prints the processor time of the
observing processes.

Limit: an observer reads in its next window what it missed while it was stopped, so observation looks slightly more
expensive than it is.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from unittest.mock import patch

from oncebench.lab.lab import Lab, open_lab
from oncebench.observe.bytes_written import BytesWritten
from oncebench.observe.resources import SAMPLE_S, SUITE, Sampler, Use
from oncebench.report.comparisons.paired import median_interval
from oncebench.run import cell as run_module
from oncebench.run import phases
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir

RATE = 1_000.0  # every guarantee sustains this rate
# Leaves idle time between batches. Without it a pipeline uses the whole machine, watched or not. Spark starts batches
# at whole multiples of the interval, so all windows hold as many. A window begins shortly before its first batch.
TRIGGER_MS = 2_000
WINDOW_S, BEFORE_BATCH_S = 10.0, 0.3
WINDOWS = 16
WARM_S = 16.0  # longer than in other runs: all windows belong to one run, and its JIT compiler must be done
PIPELINE = ("spark_jvm", "python_driver", "python_workers")
WATCHERS = ("observer", SUITE)
LOOK_S, UNWATCHED_LOOK_S = phases.CALM_LOOK_S, 1.0  # unwatched, the suite must still notice the end of the load


@dataclass(frozen=True)
class Window:
    """A part of a run: watched or not, and the processor seconds of pipeline and watchers."""

    watched: bool
    pipeline_s: float
    watchers_s: float


def turns(count: int) -> list[bool]:
    """Whether each window is watched. Every second pair is reversed to cancel a drift."""
    return [(True, False, False, True)[at % 4] for at in range(count)]


def ratios(windows: Sequence[Window]) -> list[float]:
    """The ratio of the pipeline's processor time, watched to unwatched, in each pair of windows."""
    neighbours = zip(windows[::2], windows[1::2], strict=True)
    pairs = [{window.watched: window.pipeline_s for window in pair} for pair in neighbours]
    return [pair[True] / pair[False] for pair in pairs]


def share(windows: Sequence[Window]) -> float:
    """The watchers' processor time as a share of the pipeline's, in watched windows."""
    watched = [window for window in windows if window.watched]
    return sum(window.watchers_s for window in watched) / sum(window.pipeline_s for window in watched)


class Watchers:
    """Switches a run's observer, samples and polls on or off while it runs."""

    def __init__(self) -> None:
        self.on = True
        self._run: run_module._Run | None = None

    @contextmanager
    def of_the_next_run(self) -> Iterator[None]:
        """Makes runs in this context obey the switch."""
        start_observer, look = run_module._Run._start_observers, BytesWritten.scan_if_due

        def starting(run: run_module._Run) -> None:
            start_observer(run)
            self._run = run

        def sampling(sampler: Sampler) -> None:
            while not sampler._stop.wait(SAMPLE_S):
                if self.on:
                    sampler._sample()

        def looking(written: BytesWritten) -> None:
            if self.on:
                look(written)

        with (
            patch.object(run_module._Run, "_start_observers", starting),
            patch.object(Sampler, "_run", sampling),
            patch.object(BytesWritten, "scan_if_due", looking),
            patch.object(phases, "CALM_LOOK_S", LOOK_S),
        ):
            yield

    def windows(self, count: int, over: threading.Event) -> Iterator[Window]:
        """Yields `count` windows after the run's warm-up, fewer if the run ends sooner."""
        while self._run is None or not self._run.measurement.warm:
            if over.wait(0.1):
                return
        trigger_s = TRIGGER_MS / 1000
        ends_at = ceil(time.time() / trigger_s) * trigger_s + trigger_s - BEFORE_BATCH_S
        over.wait(ends_at - time.time())
        for watched in turns(count):
            self._turn(watched)
            before = self._uses()
            ends_at += WINDOW_S
            if over.wait(ends_at - time.time()):
                break
            after = self._uses()
            took = {name: after[name].cpu_s - before[name].cpu_s for name in before}
            yield Window(watched, sum(took[name] for name in PIPELINE), sum(took[name] for name in WATCHERS))
        self._turn(True)

    def _turn(self, on: bool) -> None:
        assert self._run is not None, "windows exist only during a run"
        self.on, phases.CALM_LOOK_S = on, LOOK_S if on else UNWATCHED_LOOK_S
        observer = self._run.processes.children["observer"]
        observer.thaw() if on else observer.freeze()

    def _uses(self) -> Mapping[str, Use]:
        assert self._run is not None, "windows exist only during a run"
        self._run.meters._sampler._sample()
        return self._run.meters.uses()


def measured(cell: Cell, lab: Lab, folder: Path, count: int) -> list[Window]:
    """The windows of one run.

    Raises:
        SystemExit: the load ended before the last window.
    """
    watchers, over, found = Watchers(), threading.Event(), list[Window]()
    thread = threading.Thread(target=lambda: found.extend(watchers.windows(count, over)))
    with watchers.of_the_next_run():
        thread.start()
        try:
            run_module.run_cell(cell, lab, folder, lambda _status: None, threading.Event())
        finally:
            over.set()
            thread.join()
    if len(found) < count:
        raise SystemExit(f"{cell.title}: the load ended after {len(found)} of {count} windows. Use fewer windows")
    return found


def main(count: int, sinks: tuple[str, ...]) -> None:
    """Prints the pairs of each sink, and the ratio over all pairs with its interval.

    Raises:
        SystemExit: the number of windows is odd.
    """
    if count < 2 or count % 2:
        raise SystemExit(f"{count} windows make no pairs. Give an even number, at least 2")
    load_s = WARM_S + 2 * TRIGGER_MS / 1000 + count * WINDOW_S
    with tempfile.TemporaryDirectory(prefix="watching-") as temporary, open_lab(Path(temporary), None, sinks) as lab:
        for sink in sinks:
            cell = Cell(sink, "exactly-once", "two-phase", rate=RATE, sessions=round(RATE * load_s / 100),
                        trigger_ms=TRIGGER_MS, warmup_s=WARM_S)  # fmt: skip
            with open_work_dir(Path(temporary) / f"run-{sink}") as folder:
                windows = measured(cell, lab, folder.path, count)
            found = median_interval(ratios(windows))
            print(f"{sink}: watched x {' '.join(f'{one:.3f}' for one in found.rounds)}")
            print(f"{sink}: watched x {found.median:.3f} {found.interval('.3f')}; "
                  f"watchers use {share(windows):.1%} of the pipeline's processor time", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else WINDOWS, tuple(sys.argv[2:]) or ("kafka", "postgres"))
