"""Shows what grows in a long run: latency, memory, descriptors, files and transactional ids.

    python -m tools.long_runs.growth [MINUTES [RATE]]

Default: 60 minutes at 5,000 events/s, Kafka sink, exactly-once `two-phase`. Takes some minutes more, for the audit.

The tool runs `oncebench run` and takes a sample every SAMPLE_S seconds. A sample has the resident memory and the open
descriptors of the pipeline's and the broker's processes. It also has the number of files below the checkpoint, and of
the run's transactional ids that Kafka still lists. Latencies come from the run's own record. The tool prints one line
per STEP_S seconds of the load, and the ratio of the last third to the first third after FIRST_S seconds.

Limit: the broker keeps all of the run's events, so its page cache and its index files grow with the load.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil

from oncebench.live.streams import outlive_readers
from oncebench.measure import LATENCIES
from oncebench.sinks.kafka.coordinator import Coordinator

MINUTES, RATE = 60, 5_000
SAMPLE_S, STEP_S = 10.0, 300.0
# The JVM compiles and fills its caches in the first minutes.
FIRST_S = 300.0
# The two components that can grow, and a word in the command line of the first process of each.
COMPONENTS = {"pipeline": "pipeline", "broker": "kafka.Kafka"}


@dataclass(frozen=True)
class Sample:
    """What a run used at one time: seconds since the epoch, bytes and counts."""

    at_s: float
    figures: Mapping[str, float]


def of_component(processes: list[psutil.Process]) -> tuple[int, int]:
    """Returns the resident bytes and the open descriptors of a process and its descendants."""
    memory = descriptors = 0
    for process in processes:
        try:
            memory += process.memory_info().rss
            descriptors += process.num_fds()
        except psutil.NoSuchProcess:
            continue
    return memory, descriptors


def sample(run: psutil.Process, folder: Path) -> Sample:
    """Takes one sample of a run."""
    figures: dict[str, float] = {}
    for name, word in COMPONENTS.items():
        for child in run.children(recursive=True):
            try:
                found = word in child.cmdline()
            except psutil.Error:
                continue
            if found:
                memory, descriptors = of_component([child, *child.children(recursive=True)])
                figures |= {f"{name} MiB": memory / 2**20, f"{name} descriptors": descriptors}
                break
    figures["checkpoint files"] = sum(1 for _ in (folder / "checkpoint").rglob("*"))
    cell = json.loads((folder / "cell.json").read_text())
    with Coordinator({"bootstrap_servers": cell["kafka"]["bootstrap_servers"]}) as coordinator:
        figures["transactional ids"] = len(coordinator.listed(cell["run"]))
    return Sample(time.time(), figures)


def samples(run: subprocess.Popen[bytes], folder: Path) -> Iterator[Sample]:
    """Yields samples until the run ends."""
    while run.poll() is None:
        time.sleep(SAMPLE_S)
        try:
            yield sample(psutil.Process(run.pid), folder)
        except (OSError, ValueError, psutil.NoSuchProcess) as error:  # the run starts or ends at this moment
            print(f"no sample: {error}", file=sys.stderr)
        except Exception as error:
            print(f"no sample: {type(error).__name__}: {error}", file=sys.stderr)


def latencies_ms(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns the time at which each row was due, in seconds, and its latency in ms."""
    times = np.load(folder / LATENCIES)
    return times[:, 0] / 1e6, (times[:, 2] - times[:, 0]) / 1e3


def print_growth(taken: list[Sample], folder: Path) -> None:
    """Prints a line per step, and the growth of each figure."""
    due_s, latency_ms = latencies_ms(folder)
    facts = json.loads((folder / "facts.json").read_text())
    begun = facts["measured_from_us"] / 1e6
    load = [one for one in taken if begun <= one.at_s <= due_s.max()]
    names = list(load[-1].figures)
    print("| minute | p50 ms | p99 ms | " + " | ".join(names) + " |")
    print("| ---: | ---: | ---: |" + " ---: |" * len(names))
    for start in np.arange(begun, due_s.max(), STEP_S):
        chosen = latency_ms[(due_s >= start) & (due_s < start + STEP_S)]
        seen = [one.figures for one in load if start <= one.at_s < start + STEP_S]
        cells = [f"{median(one[name] for one in seen if name in one):,.0f}" for name in names]
        tail = np.percentile(chosen, (50, 99))
        print(f"| {(start - begun) / 60:.0f} | {tail[0]:.0f} | {tail[1]:.0f} | " + " | ".join(cells) + " |")
    print()
    third = (due_s.max() - begun - FIRST_S) / 3
    early, late = begun + FIRST_S + third, due_s.max() - third
    for percentile in (50, 99):
        first = np.percentile(latency_ms[(due_s >= begun + FIRST_S) & (due_s < early)], percentile)
        last = np.percentile(latency_ms[due_s >= late], percentile)
        print(f"p{percentile}: last third / first third after {FIRST_S:g} s = {last / first:.2f}")
    for name in names:
        first = median(one.figures[name] for one in load if begun + FIRST_S <= one.at_s < early)
        last = median(one.figures[name] for one in load if one.at_s >= late)
        print(f"{name}: {last / first:.2f} ({first:,.0f} to {last:,.0f})")


def main(minutes: float, rate: int) -> None:
    """Runs the load and prints what grew."""
    if minutes * 60 < 2 * FIRST_S:
        raise SystemExit(f"{minutes:g} minutes are too short to show growth: give {2 * FIRST_S / 60:g} or more")
    with tempfile.TemporaryDirectory(prefix="growth-") as name:
        folder = Path(name) / "run"
        command = [
            str(Path(sys.executable).with_name("oncebench")), "run", "--sink", "kafka", "--guarantee", "exactly-once",
            "--rate", str(rate), "--duration", f"{minutes * 60:g}", "--warmup", "20", "--work-dir", str(folder),
        ]  # fmt: skip
        with subprocess.Popen(command) as run:
            taken = list(samples(run, folder))
        print_growth(taken, folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.long_runs.growth")
    parser.add_argument("minutes", nargs="?", type=float, default=MINUTES, help="Duration of the load in minutes.")
    parser.add_argument("rate", nargs="?", type=int, default=RATE, help="Events per second.")
    return parser


if __name__ == "__main__":
    outlive_readers()
    main(**vars(_parser().parse_args()))
