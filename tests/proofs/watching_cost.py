"""What looking at a run costs it: `python -m tests.proofs.watching_cost [PAIRS] [SINK ...]`, some 80 s a pair.

The same cell is run in pairs, once watched as ever, once with neither observer nor samples, the order swapped from pair
to pair; the pipeline's processor time per million events is compared within each pair, from the end of the warm-up on:
of the events that were still to be read then, for an unwatched run sees that end up to a second late. Beside it stands
what the watchers used themselves. A run without them ends up to a second later, for nobody looks sooner, and idles
meanwhile: that may make it look dearer. Use a quiet machine: the price of other load is counted to whoever met it.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from unittest.mock import patch

from oncebench.record import Record
from oncebench.reports.paired import bootstrap
from oncebench.reports.price import watching_share
from oncebench.reports.timeline import events_after
from oncebench.run import cell as run_module
from oncebench.run.cell import Ran, run_cell
from oncebench.run.lab import open_lab
from oncebench.run.workdir import open_work_dir
from oncebench.scenario import Cell
from oncebench.services import process
from oncebench.watch.resources import Sampler

RATE, SESSIONS = 1_000.0, 300  # 30 s of a load that every guarantee sustains
# With room between the batches: without it a pipeline takes what of the machine is left, watched or not.
TRIGGER_MS = 2_000
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


def cpu_s_per_million(ran: Ran, record: Record) -> float:
    """Processor seconds of the pipeline for a million events, both from when the run began to count."""
    return sum(ran.uses[name].cpu_s for name in PIPELINE) / events_after(record, ran.measured_from_us) * 1e6


def main(pairs: int, sinks: tuple[str, ...]) -> None:
    """Prints each pair, and the ratio over all with its interval."""
    with tempfile.TemporaryDirectory(prefix="watching-") as temporary, open_lab(Path(temporary), None, sinks) as lab:
        for sink in sinks:
            ratios, shares = [], []
            for number in range(pairs):
                cell = Cell(sink, "exactly-once", "two-phase", rate=RATE, sessions=SESSIONS, trigger_ms=TRIGGER_MS,
                            seed=number + 1)  # fmt: skip
                took, uses = dict.fromkeys(("watched", "unwatched"), 0.0), {}
                for name in list(took)[:: 1 if number % 2 else -1]:
                    with open_work_dir(Path(temporary) / f"{sink}-{number}-{name}") as folder:
                        with unwatched() if name == "unwatched" else ExitStack():
                            ran = run_cell(cell, lab, folder.path, lambda _seen: None, threading.Event())
                        took[name], uses[name] = cpu_s_per_million(ran, Record.load(folder.path)), ran.uses
                watched, alone = took.values()
                ratios.append(watched / alone)
                shares.append(watching_share(uses["watched"]) or 0.0)
                print(f"{sink} pair {number + 1}: CPU s per million events {watched:.0f} watched, {alone:.0f} alone, "
                      f"x {ratios[-1]:.3f}; watchers {shares[-1]:.1%}", flush=True)  # fmt: skip
            found = bootstrap(ratios)
            print(f"{sink}: watched x {found.median:.3f} {found.interval('.3f')}; "
                  f"watchers use {median(shares):.1%} of what the pipeline does", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7, tuple(sys.argv[2:]) or ("kafka", "postgres"))
