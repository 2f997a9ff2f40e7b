"""What each guarantee of each sink costs and breaks, tracked over commits.

Lower is better, but of a share (`checkpoint_percent`): it also falls when the rest of a batch grows.

All cells are measured once for all metrics, in turns. `ONCEBENCH_BENCH_SINKS` (names with spaces between them),
`ONCEBENCH_BENCH_ONLY` (words that a cell must have) and `ONCEBENCH_BENCH_ROUNDS` make it less: `oncebench bench` sets
them.
"""

import os

from asv_runner.benchmarks.mark import SkipNotImplemented as _Skip

from oncebench import bench as _bench
from oncebench.report.measures import metrics as _metrics

_SINKS = os.environ.get("ONCEBENCH_BENCH_SINKS", "").split()
_ONLY = [words] if (words := os.environ.get("ONCEBENCH_BENCH_ONLY")) else []  # older commits take none
_ROUNDS = int(os.environ.get("ONCEBENCH_BENCH_ROUNDS", "3"))


def setup_cache():
    """Figures by cell and metric."""
    return _bench.figures(_SINKS, _ROUNDS, *_ONLY)


# A healthy round of a cell takes 30 to 38 s on two cores, its killed run 31 to 37 s, the one flat out 17 to 27 s; a
# busy machine may take twice that. From 7 rounds on all three are run in each. Each sink starts its servers once, and
# the first run of all fetches jars. Of what takes longer asv keeps nothing.
_CELLS = _bench.names(_SINKS, *_ONLY)
setup_cache.timeout = 2 * len(_CELLS) * (34 * _ROUNDS + (40 + 25) * (_ROUNDS if _ROUNDS >= 7 else 1)) + 600


def _track(metric, unit):
    def track(_self, figures, cell):
        if metric not in figures[cell]:
            raise _Skip  # the sink or the guarantee has no such figure, or the run was none to be timed
        # asv then keeps them all, and compares by statistics.
        return {"samples": figures[cell][metric], "number": 1}

    track.unit = unit
    return track


class _Cells:
    params, param_names = [_bench.names()], ["cell"]
    version = "7"  # by hand: asv's own would change with every edit of this file

    def setup(self, _figures, cell):
        if cell not in _CELLS:
            raise _Skip


class Cost(_Cells):
    """Of healthy runs at 1,000 events/s; seconds for a million events of one whose load was there before it began."""


class Promise(_Cells):
    """Of all runs, healthy and killed where it tells most: anything but 0 is a broken promise, or one not tested."""

    track_broken = _track("broken", "broken promises")
    track_untested = _track("untested", "runs that could not tell")
    track_lost = _track("lost", "rows")
    track_duplicated = _track("duplicated", "rows")


class Recovery(_Cells):
    """Of the killed run: from the kill to the first new row."""

    track_recovery_s = _track("recovery_s", "s")


for _metric in _metrics.METRICS:
    if not _metric.promised and _metric.name != "recovery_s":
        setattr(Cost, f"track_{_metric.name}", _track(_metric.name, _metric.heading))
