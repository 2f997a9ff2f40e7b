"""Tracks over commits the cost of each sink's guarantees, and whether each is kept.

Lower is better, except for a share (`checkpoint_percent`), which also falls when the rest of a batch grows.

All cells are measured once for all metrics, in turns. Three variables reduce the work, and `oncebench bench` sets them:
`ONCEBENCH_BENCH_SINKS` (names separated by spaces), `ONCEBENCH_BENCH_ONLY` (words that the name of a cell must contain)
and `ONCEBENCH_BENCH_ROUNDS`.
"""

import os

from asv_runner.benchmarks.mark import SkipNotImplemented as _Skip

from oncebench import bench as _bench

_SINKS = os.environ.get("ONCEBENCH_BENCH_SINKS", "").split()
_ONLY = [words] if (words := os.environ.get("ONCEBENCH_BENCH_ONLY")) else []  # older commits lack this parameter
_ROUNDS = int(os.environ.get("ONCEBENCH_BENCH_ROUNDS", "3"))


def setup_cache():
    """Measures all cells; returns figures by cell and metric."""
    return _bench.figures(_SINKS, _ROUNDS, *_ONLY)


# On two cores a healthy run takes 30 to 38 s, a killed run 31 to 37 s, a flat-out run 17 to 27 s. A busy machine may
# take twice that. From 7 rounds on every round has all three. The 600 s cover the servers of each sink and the first
# download of jars. asv discards all figures if the timeout passes.
_CELLS = _bench.names(_SINKS, *_ONLY)
setup_cache.timeout = 2 * len(_CELLS) * (34 * _ROUNDS + (40 + 25) * (_ROUNDS if _ROUNDS >= 7 else 1)) + 600


def _track(metric, unit):
    def track(_self, figures, cell):
        if metric not in figures[cell]:
            raise _Skip  # this cell has no such figure, or its runs allow no timing
        # With samples asv keeps every figure and compares by statistics.
        return {"samples": figures[cell][metric], "number": 1}

    track.unit = unit
    return track


class _Cells:
    params, param_names = [_bench.names()], ["cell"]
    version = "8"  # set by hand: asv's own version would change with every edit of this file

    def setup(self, _figures, cell):
        if cell not in _CELLS:
            raise _Skip


class Cost(_Cells):
    """Costs of healthy runs at 3,000 events/s, and of a flat-out run per million events."""


class Promise(_Cells):
    """Promises in all runs, healthy and killed: a value above 0 is broken or untested."""

    track_broken = _track("broken", "broken promises")
    track_untested = _track("untested", "runs without a verdict")
    track_lost = _track("lost", "rows")
    track_duplicated = _track("duplicated", "rows")


class Recovery(_Cells):
    """Recovery of the killed run: from the kill to the first new row."""

    track_recovery_s = _track("recovery_s", "s")


for _metric in _bench.METRICS:
    if not _metric.promised and _metric.name != "recovery_s":
        setattr(Cost, f"track_{_metric.name}", _track(_metric.name, _metric.heading))
