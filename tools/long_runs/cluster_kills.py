"""Runs one cell on a Spark cluster whose workers are killed again and again, and audits it.

    python -m tools.long_runs.cluster_kills [--kills 20] [--seed 1] [--sink kafka] [--variant two-phase] [--rate 200]

Takes about 25 s per kill on two cores. The cluster has two workers with one core each, as in `oncebench run --cluster
2`. A kill ends one worker and its executor with SIGKILL, as the power failure of a machine does. The worker comes back
after HOLD_S at most. The seed decides the worker, the moment after a committed batch, and the time until the worker is
back. The next kill waits until a later batch is committed with all workers.

The run, its audit and its report are those of `oncebench run`. At the end the tool prints the report, and the longest
time without a committed batch. Exit code: that of `oncebench run`; 1 if the load ended before all kills; 130 after
Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oncebench.errors import ExitCode, UserError
from oncebench.experiments.workspace import bytes_needed
from oncebench.lab.lab import open_lab
from oncebench.lab.spark.cluster import FOLDER
from oncebench.live.status import LOADING, Phase, RunStatus
from oncebench.live.streams import outlive_readers
from oncebench.live.view import view
from oncebench.measure import BULKY, exit_code, measure
from oncebench.record.json_lines import read_lines
from oncebench.report.results import default_work_dir
from oncebench.report.schema import Report
from oncebench.report.summary import summary
from oncebench.run.interrupt import gently
from oncebench.scenario.cell import Cell
from oncebench.servers.spark_cluster import SparkCluster, start_spark_cluster
from oncebench.sinks.reader import now_us
from oncebench.workdir import delete_below, open_work_dir, require_free
from tools.long_runs.operator_run import longest_stall

WORKERS = 2
# Seconds from a committed batch to the kill: a batch of some hundred events takes a second or two on a cluster.
DELAY_S = 4.0
# Longest time until a killed worker is back: long enough for the pipeline to end, or to start again with one worker.
HOLD_S = 15.0
# Seconds of load per kill, so that the load outlasts the kills on two busy cores.
LOAD_S = 35.0


class Killer:
    """Kills and restarts one worker after another while the load runs.

    Args:
        folder: of the run.
        kills: how many times.
    """

    def __init__(self, cluster: SparkCluster, folder: Path, kills: int, seed: int) -> None:
        self.lines: list[str] = []
        self.kills = 0
        self._cluster, self._folder, self._wanted = cluster, folder, kills
        self._random = random.Random(seed)
        self._kill_at: float | None = None
        self._down: tuple[int, float] | None = None
        self._since_us = 0

    def look(self, phase: Phase) -> None:
        """Does what is due. A run calls this at each look, from one thread."""
        now = time.monotonic()
        if self._down is not None:
            index, back_at = self._down
            if now >= back_at or phase != LOADING:
                self._cluster.restart_worker(index)
                self._down, self._since_us = None, now_us()
        elif phase != LOADING or self.kills == self._wanted:
            return
        elif self._kill_at is None:
            if self._cluster.alive() == WORKERS and self._committed():
                self._kill_at = now + self._random.uniform(0.0, DELAY_S)
        elif now >= self._kill_at:
            index, hold_s = self._random.randrange(WORKERS), self._random.uniform(0.0, HOLD_S)
            self._cluster.kill_worker(index)
            self._kill_at, self._down = None, (index, now + hold_s)
            self.kills += 1
            self.lines.append(f"{time.strftime('%H:%M:%S')} worker {index + 1} killed, back after {hold_s:.1f} s")
            print(f"{self.kills} of {self._wanted}: {self.lines[-1]}", file=sys.stderr, flush=True)

    def _committed(self) -> bool:
        lines = read_lines(self._folder / "progress.jsonl").items
        return any(line["kind"] == "batch" and line["t_us"] > self._since_us for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cell and prints what happened; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        report, kills = _run(options)
    except KeyboardInterrupt:
        print("interrupted: there is no report", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if report["interrupted"]:
        return ExitCode.INTERRUPTED
    return exit_code([report]) or (ExitCode.KEPT if kills == options.kills else ExitCode.ERROR)


def _run(options: argparse.Namespace) -> tuple[Report, int]:
    """Runs the cell, prints what happened, and returns the report and the number of kills."""
    sessions = round(options.rate * LOAD_S * options.kills / 100)
    cell = Cell(options.sink, "exactly-once", options.variant, rate=options.rate, sessions=sessions,
                seed=options.seed, workers=WORKERS)  # fmt: skip
    with open_work_dir(options.work_dir or default_work_dir("cluster-kills")) as work, gently() as interrupted:
        require_free(work.path, bytes_needed([cell]))
        with (
            open_lab(work.path, None, [cell.sink]) as lab,
            start_spark_cluster(work.path / FOLDER, lab.java, WORKERS) as cluster,
            view(cell.brief) as show,
        ):
            killer = Killer(cluster, work.path, options.kills, options.seed)

            def shown(status: RunStatus) -> None:
                killer.look(status.phase)
                show(status)

            report = measure(cell, replace(lab, cluster=cluster), work.path, shown, interrupted)
        stall = longest_stall(work.path)
        print(summary(report, work.path))
        print(f"\n{killer.kills} of {options.kills} kills of a worker, seed {options.seed}:", *killer.lines, sep="\n  ")
        if stall is not None:
            print(f"\nlongest time without a committed batch: {stall[0]:.1f} s, from {stall[1]}")
        if report["verdict"] == "kept":
            for name in BULKY:
                delete_below(work.path, work.path / name)
    return report, killer.kills


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.long_runs.cluster_kills")
    parser.add_argument("--kills", type=int, default=20, help="Number of kills of a worker.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the load and of the kills.")
    parser.add_argument("--sink", choices=("kafka", "postgres"), default="kafka", help="Sink that the pipeline uses.")
    parser.add_argument("--variant", default="two-phase", help="Variant of exactly-once.")
    parser.add_argument("--rate", type=float, default=200.0, help="Events per second.")
    parser.add_argument("--work-dir", type=Path, help="Folder of the run; a new one by default.")
    return parser


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
