"""What looking at a run costs it: `python -m tools.observer_cost [WINDOWS] [SINK ...]`, four minutes a sink.

One long run has windows of WINDOW_S in which it is watched as ever, and as many in which the observer stands still and
nothing is sampled or looked at; the order turns (on, off, off, on). The pipeline's processor time in a window is
compared with that of the window beside it, which has the same load in the same JVM: two runs each compile their code in
a way of their own, and differ by more than what is looked for. Beside it stands what the watchers used themselves.

What can go wrong: what an observer missed while it stood still it reads in the next window, so looking comes out a
little dearer than it is. Use a quiet machine: the price of other load is counted to whoever met it.
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
from oncebench.observe.resources import SAMPLE_S, Sampler, Use
from oncebench.report.comparisons.paired import bootstrap
from oncebench.run import cell as run_module
from oncebench.run.meters import SUITE
from oncebench.run.workdir import open_work_dir
from oncebench.scenario.cell import Cell

RATE = 1_000.0  # which every guarantee sustains
# With room between the batches: without it a pipeline takes what of the machine is left, watched or not. Spark begins
# batches at whole multiples of it, so that each window holds as many; it begins shortly before the first of them.
TRIGGER_MS = 2_000
WINDOW_S, BEFORE_BATCH_S = 10.0, 0.3
WINDOWS = 16
WARM_S = 16.0  # longer than what is left out elsewhere: all windows are of one run, and its compiler must have rested
PIPELINE = ("spark_jvm", "python_driver", "python_workers")
WATCHERS = ("observer", SUITE)
LOOK_S, UNWATCHED_LOOK_S = run_module.CALM_LOOK_S, 1.0  # unwatched, the suite still has to see that the load is over


@dataclass(frozen=True)
class Window:
    """A stretch of a run, whether it was watched, and the processor seconds that pipeline and watchers took in it."""

    watched: bool
    pipeline_s: float
    watchers_s: float


def turns(count: int) -> list[bool]:
    """Whether each window is watched: every other pair the other way round, so that what drifts meets both alike."""
    return [(True, False, False, True)[at % 4] for at in range(count)]


def ratios(windows: Sequence[Window]) -> list[float]:
    """The pipeline's processor time, watched beside unwatched, of each two windows that follow one another."""
    both = zip(windows[::2], windows[1::2], strict=True)
    pairs = [{window.watched: window.pipeline_s for window in pair} for pair in both]
    return [pair[True] / pair[False] for pair in pairs]


def share(windows: Sequence[Window]) -> float:
    """What the watchers took where they watched, as a share of what the pipeline did."""
    watched = [window for window in windows if window.watched]
    return sum(window.watchers_s for window in watched) / sum(window.pipeline_s for window in watched)


class Watchers:
    """Observer, samples and looks of a run that goes on: all of them on, or off."""

    def __init__(self) -> None:
        self.on = True
        self._run: run_module._Run | None = None

    @contextmanager
    def of_the_next_run(self) -> Iterator[None]:
        """Runs in here are watched as these are turned."""
        start_observer, look = run_module._Run._start_observer, BytesWritten.scan_if_due

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
            patch.object(run_module._Run, "_start_observer", starting),
            patch.object(Sampler, "_run", sampling),
            patch.object(BytesWritten, "scan_if_due", looking),
            patch.object(run_module, "CALM_LOOK_S", LOOK_S),
        ):
            yield

    def windows(self, count: int, over: threading.Event) -> Iterator[Window]:
        """So many of them, from the run's mark on, unless it is over sooner."""
        while self._run is None or not self._run.warm:
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
        assert self._run is not None, "there are windows in a run only"
        self.on, run_module.CALM_LOOK_S = on, LOOK_S if on else UNWATCHED_LOOK_S
        observer = self._run.children["observer"]
        observer.thaw() if on else observer.freeze()

    def _uses(self) -> Mapping[str, Use]:
        assert self._run is not None, "there are windows in a run only"
        self._run.meters._sampler._sample()
        return self._run.meters.uses()


def measured(cell: Cell, lab: Lab, folder: Path, count: int) -> list[Window]:
    """The windows of one run.

    Raises:
        SystemExit: its load was over before they were.
    """
    watchers, over, found = Watchers(), threading.Event(), list[Window]()
    thread = threading.Thread(target=lambda: found.extend(watchers.windows(count, over)))
    with watchers.of_the_next_run():
        thread.start()
        try:
            run_module.run_cell(cell, lab, folder, lambda _seen: None, threading.Event())
        finally:
            over.set()
            thread.join()
    if len(found) < count:
        raise SystemExit(f"{cell.title}: only {len(found)} of {count} windows were over before the load was")
    return found


def main(count: int, sinks: tuple[str, ...]) -> None:
    """Prints the pairs of each sink, and the ratio over all with its interval.

    Raises:
        SystemExit: the windows make no pairs.
    """
    if count < 2 or count % 2:
        raise SystemExit(f"{count} windows make no pairs: give an even number of them")
    load_s = WARM_S + 2 * TRIGGER_MS / 1000 + count * WINDOW_S
    with tempfile.TemporaryDirectory(prefix="watching-") as temporary, open_lab(Path(temporary), None, sinks) as lab:
        for sink in sinks:
            cell = Cell(sink, "exactly-once", "two-phase", rate=RATE, sessions=round(RATE * load_s / 100),
                        trigger_ms=TRIGGER_MS, warmup_s=WARM_S)  # fmt: skip
            with open_work_dir(Path(temporary) / f"run-{sink}") as folder:
                windows = measured(cell, lab, folder.path, count)
            found = bootstrap(ratios(windows))
            print(f"{sink}: watched x {' '.join(f'{one:.3f}' for one in found.rounds)}")
            print(f"{sink}: watched x {found.median:.3f} {found.interval('.3f')}; "
                  f"watchers use {share(windows):.1%} of what the pipeline does", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else WINDOWS, tuple(sys.argv[2:]) or ("kafka", "postgres"))
