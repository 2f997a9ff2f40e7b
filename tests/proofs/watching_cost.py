"""What looking at a run costs it: `python -m tests.proofs.watching_cost [PAIRS] [SINK ...]`, some 80 s a pair.

The same cell is run in pairs, once watched as ever, once with neither observer nor samples, the order swapped from pair
to pair; the pipeline's processor time per million events is compared within each pair. Beside it stands what the
watchers used themselves. A run without them ends up to a second later, for nobody looks sooner, and idles meanwhile:
that may make it look dearer. Use a quiet machine: the price of other load is counted to whoever met it.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from unittest.mock import patch

from oncebench.reports.paired import bootstrap
from oncebench.reports.price import watching_share
from oncebench.run import cell as run_module
from oncebench.run.cell import run_cell
from oncebench.run.lab import open_lab
from oncebench.scenario import Cell
from oncebench.services import process
from oncebench.watch.resources import Sampler, Use

RATE, SESSIONS = 1_000.0, 200  # 20 s of a load that every guarantee sustains
PIPELINE = ("spark_jvm", "python_driver", "python_workers")
UNWATCHED_LOOK_S = 1.0  # the suite still has to see that a run is done


@contextmanager
def unwatched() -> Iterator[None]:
    """Runs in here have an observer that sleeps, no samples but those at the mark and at the end, few looks."""

    def sleeping(run: run_module._Run) -> None:
        log = run.folder / "logs" / "observer.log"
        run.children["observer"] = process.start("the observer", ["sleep", "600"], log)

    with ExitStack() as stack:
        stack.enter_context(patch.object(run_module._Run, "_start_observer", sleeping))
        stack.enter_context(patch.object(Sampler, "_run", lambda self: self._stop.wait()))
        stack.enter_context(patch.object(run_module, "LOOK_S", UNWATCHED_LOOK_S))
        yield


@contextmanager
def noted(uses: dict[str, Use]) -> Iterator[None]:
    """Has runs in here put what was used into `uses` just before the pipeline is stopped, watched or not."""
    say = run_module._Run._say

    def noting(run: run_module._Run, phase: str) -> None:
        if phase == "stopping":
            uses.update(run.meters.uses())
        say(run, phase)

    with patch.object(run_module._Run, "_say", noting):
        yield


def cpu_s_per_million(uses: Mapping[str, Use], events: int) -> float:
    """Processor seconds of the pipeline for a million events."""
    return sum(uses[name].cpu_s for name in PIPELINE) / events * 1e6


def main(pairs: int, sinks: tuple[str, ...]) -> None:
    """Prints each pair, and the ratio over all with its interval."""
    with tempfile.TemporaryDirectory(prefix="watching-") as temporary, open_lab(Path(temporary), None, sinks) as lab:
        for sink in sinks:
            ratios, shares = [], []
            for number in range(pairs):
                cell = Cell(sink, "exactly-once", "two-phase", rate=RATE, sessions=SESSIONS, seed=number + 1)
                used: dict[str, dict[str, Use]] = {"watched": {}, "unwatched": {}}
                for name in list(used)[:: 1 if number % 2 else -1]:
                    folder = Path(temporary) / f"{sink}-{number}-{name}"
                    folder.mkdir()
                    with noted(used[name]), unwatched() if name == "unwatched" else ExitStack():
                        run_cell(cell, lab, folder, lambda _seen: None, threading.Event())
                watched, alone = (cpu_s_per_million(uses, SESSIONS * 100) for uses in used.values())
                ratios.append(watched / alone)
                shares.append(watching_share(used["watched"]) or 0.0)
                print(f"{sink} pair {number + 1}: CPU s per million events {watched:.0f} watched, {alone:.0f} alone, "
                      f"x {ratios[-1]:.3f}; watchers {shares[-1]:.1%}", flush=True)  # fmt: skip
            found = bootstrap(ratios)
            print(f"{sink}: watched x {found.median:.3f} {found.interval('.3f')}; "
                  f"watchers use {median(shares):.1%} of what the pipeline does", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7, tuple(sys.argv[2:]) or ("kafka", "postgres"))
