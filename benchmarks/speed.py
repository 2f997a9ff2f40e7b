"""Tracks over commits how fast the pipeline is, with the same load for each commit.

Each commit runs by its own command line. Options and fields of the report have the same names in every commit, except
`--guarantee`: older commits call it `--delivery`. One configuration is measured: the Kafka sink, exactly-once,
two-phase. Lower is better in each metric.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = int(os.environ.get("ONCEBENCH_BENCH_ROUNDS", "3"))
# The highest rate that the first commit of the history keeps up with.
STEADY = ("--rate", "3000", "--duration", "30", "--warmup", "10")
# The slowest commit takes 100 s for both runs on an idle machine.
RUN_LIMIT_S = 300
# 1.2 million events, in batches as after an outage of some seconds. Reports since schema 4 leave out a shorter warm-up
# time of a flat-out load, and older ones do not. A warm-up time that no run reaches gives all commits the older rule:
# the whole load counts from the query's start, with the first batches of a cold JVM.
FLAT_OUT = ("--rate", "max", "--sessions", "12000", "--max-events-per-batch", "100000", "--warmup", str(RUN_LIMIT_S))
# A generator that was later than this for one event in a hundred did not keep its rate.
LATE_MS = 100
# The exit code of a run whose verdict is neither kept nor broken.
UNDECIDED = 1
# A report's path to each figure, the factor to the metric's unit, and the unit.
METRICS = {
    "flat_out_s_per_million": ("throughput events_per_s", lambda per_s: 1e6 / per_s, "s"),
    "flat_out_cpu_us_per_event": ("cpu_s_per_million_events", float, "µs"),
    "steady_p50_ms": ("latency_ms p50", float, "ms"),
    "steady_p99_ms": ("latency_ms p99", float, "ms"),
    "steady_batch_ms": ("batches trigger_ms", float, "ms"),
}


def run(options, folder):
    """Runs the installed commit with these options; returns its report.

    Raises:
        RuntimeError: the run wrote no report, or it broke its guarantee.
    """
    command = [str(Path(sys.executable).with_name("oncebench")), "run"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    named = "--guarantee" if "--guarantee" in shown else "--delivery"
    report = folder / "report.json"
    report.unlink(missing_ok=True)  # of the run before
    asked = [*command, "--sink", "kafka", named, "exactly-once", "--variant", "two-phase", *options]
    with tempfile.TemporaryDirectory(dir=folder) as work:
        done = subprocess.run(
            [*asked, "--json", str(report), "--work-dir", str(Path(work) / "run")],
            timeout=RUN_LIMIT_S, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode not in (0, UNDECIDED) or not report.exists():
        raise RuntimeError(f"{' '.join(asked)} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(report.read_text())


def figure(report, metric):
    """Returns a metric's figure in a report."""
    path, of, _unit = METRICS[metric]
    value = report
    for name in path.split():
        value = value[name]
    return of(value)


def why_not_measured(kind, report):
    """Returns why a run's figures do not describe its commit; None if they do.

    It is the rule of `why_no_speed` in oncebench/report/measures/metrics.py, in the fields that every commit has.
    """
    late_ms = report.get("generator", {}).get("lateness_ms", {}).get("p99") or 0
    if kind == "steady" and late_ms > LATE_MS:
        return f"the generator was {late_ms:.0f} ms late for one event in a hundred: the machine was busy"
    if report.get("deaths", {}).get("unasked"):
        return "the pipeline died unasked"
    verdict = report["verdict"]
    return None if verdict == "kept" else f"its verdict is {verdict}: {' '.join(report.get('reasons', ()))}"


def setup_cache():
    """Runs both loads in turns; returns each metric's figures.

    Raises:
        RuntimeError: no run of a load was measured, or `run` raised it.
    """
    found = {metric: [] for metric in METRICS}
    with tempfile.TemporaryDirectory(prefix="oncebench-bench-") as folder:
        for _ in range(ROUNDS):
            for kind, options in (("flat_out", FLAT_OUT), ("steady", STEADY)):
                report = run(options, Path(folder))
                reason = why_not_measured(kind, report)
                if reason is not None:
                    print(f"a run of {kind} does not count: {reason}", file=sys.stderr)
                    continue
                for metric in METRICS:
                    if metric.startswith(kind):
                        found[metric].append(figure(report, metric))
    if not all(found.values()):
        raise RuntimeError("every run of a load was disturbed. Run the benchmarks again on an idle machine")
    return found


setup_cache.timeout = ROUNDS * 2 * RUN_LIMIT_S


def _track(metric):
    def track(_self, found):
        # With samples asv keeps every figure and compares by statistics.
        return {"samples": found[metric], "number": 1}

    track.unit = METRICS[metric][2]
    return track


class Speed:
    """Speed of one configuration: flat out, and at 3,000 events/s."""

    # Set by hand: asv's own version would change with every edit of this file. Figures of version 1 are not comparable:
    # the older commits included the first batches of a flat-out load, and the newer ones did not.
    version = "2"


for _metric in METRICS:
    setattr(Speed, f"track_{_metric}", _track(_metric))
