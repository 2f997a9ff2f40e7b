"""Computes by which factor a figure must grow for `asv compare` to find the change.

    python -m tools.detectable_change [REPORTS ...]

Takes about two minutes on two cores; no Spark and no broker. REPORTS: default is results/runs/costs-*.jsonl.

For each metric and number of rounds it prints the factor that asv finds in half of the tries: the median over the cells
of the full comparison. A try draws that many rounds of a commit, and as many rounds of a second commit that is slower
by the factor. Both come from a log-normal distribution with the median and spread of the cell's published rounds. The
try then applies the test of `asv compare`: `asv._stats.is_different`, and whether the median grew.

Limit: real rounds are slow together when the machine is slow, but the tries are independent. A paired comparison would
find smaller factors; asv does not pair.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import median

import numpy as np
from asv._stats import is_different
from asv_runner.statistics import compute_stats

from oncebench.report.comparisons.paired import FEWEST_ROUNDS, settings
from oncebench.report.comparisons.sweep_selection import full_of
from oncebench.report.measures.metrics import BY_NAME, Metric, figure
from oncebench.report.report import read_reports

RUNS = Path(__file__).resolve().parents[1] / "results" / "runs"
METRICS = ("p50_ms", "batch_ms", "gap_ms", "commit_ms")
ROUNDS = (3, 5, 7)
TRIES = 200
FACTORS = np.arange(1.05, 6, 0.05)


def found(logs: Sequence[float], rounds: int, factor: float, draw: np.random.Generator) -> float:
    """The share of tries in which asv finds a growth by `factor`.

    `logs`: the logarithms of the figure in many rounds.
    """
    middle, spread = median(logs), float(np.std(logs, ddof=1))
    hits = 0
    for _ in range(TRIES):
        before, after = (np.exp(draw.normal(middle, spread, rounds)).tolist() for _ in range(2))
        after = [value * factor for value in after]
        stats = [compute_stats(values, 1)[1] for values in (before, after)]
        hits += bool(is_different(before, after, *stats)) and median(after) > median(before)
    return hits / TRIES


def smallest(values: Sequence[float], rounds: int) -> float:
    """The smallest of FACTORS that asv finds in every other try."""
    draw = np.random.default_rng(rounds)
    logs = np.log(values).tolist()
    return next((float(factor) for factor in FACTORS if found(logs, rounds, factor, draw) >= 0.5), inf)


def main(paths: Sequence[Path]) -> None:
    """Prints a line for each metric."""
    by_setting = settings(report for path in paths for report in read_reports(path))
    cells: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for sink, setting in full_of(by_setting).items():
        for here in by_setting[setting].values():
            for variant, report in here.items():
                for metric in map(BY_NAME.__getitem__, METRICS):
                    _add(cells.setdefault((sink, *variant), {}), metric, figure(report, metric))
    for name in METRICS:
        figures = [values[name] for values in cells.values() if len(values.get(name, ())) >= FEWEST_ROUNDS]
        factors = [median(smallest(values, rounds) for values in figures) for rounds in ROUNDS]
        factors_text = ", ".join(
            f"{'more than 6' if factor == inf else f'{factor:.2f}'} with {rounds} rounds"
            for factor, rounds in zip(factors, ROUNDS, strict=True)
        )
        print(f"{BY_NAME[name].heading}: {factors_text}; the median of {len(figures)} cells", flush=True)


def _add(cell: dict[str, list[float]], metric: Metric, value: float | None) -> None:
    if value:
        cell.setdefault(metric.name, []).append(value)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or sorted(RUNS.glob("costs-*.jsonl")))
