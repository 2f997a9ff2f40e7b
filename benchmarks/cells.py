"""What each guarantee of the Kafka sink costs and breaks, tracked over commits.

A cell is run once and all its metrics are read from its report. Lower is better throughout.
"""

import tempfile
from pathlib import Path

from oncebench import measure as _measure
from oncebench import scenario as _scenario
from oncebench.run import lab as _lab
from oncebench.run import workdir as _workdir

_VARIANTS = ("claim", "acknowledged", "native", "two-phase", "idempotent")
_REPORTS: dict[tuple[str, bool], dict] = {}


def _report(variant: str, killed: bool) -> dict:
    """The report of a variant, healthy or killed where it tells most; run once per process."""
    if (variant, killed) not in _REPORTS:
        cell = next(
            cell
            for cell in _scenario.quick(_scenario.Cell("", "", "", rate=2000.0, sessions=200))
            if (cell.sink, cell.variant, cell.faulted) == ("kafka", variant, killed)
        )
        with (
            tempfile.TemporaryDirectory() as folder,
            _workdir.open_work_dir(Path(folder) / "work") as work,
            _lab.open_lab(work.path) as here,
        ):
            _REPORTS[variant, killed] = _measure.measure(cell, here, work.path)
    return _REPORTS[variant, killed]


class Cost:
    """Of a healthy run at 2,000 events/s."""

    params, param_names = [_VARIANTS], ["variant"]
    version, timeout, unit = "1", 300, "ms"

    def track_latency_p50_ms(self, variant):
        return _report(variant, killed=False)["latency_ms"]["p50"]

    def track_latency_p99_ms(self, variant):
        return _report(variant, killed=False)["latency_ms"]["p99"]

    def track_batch_ms(self, variant):
        return _report(variant, killed=False)["batches"]["trigger_ms"]


class Promise:
    """Of a run that was killed where it tells most: anything but 0 is a broken promise."""

    params, param_names = [_VARIANTS], ["variant"]
    version, timeout, unit = "1", 300, "broken promises"

    def track_broken(self, variant):
        return int(_report(variant, killed=True)["verdict"] != "kept")
