"""What each guarantee of the Kafka sink costs and breaks, tracked over commits.

All cells are run once, one after the other, on one broker; every figure is read from their reports. Lower is better
throughout.
"""

import tempfile
from pathlib import Path

from oncebench import measure as _measure
from oncebench import scenario as _scenario
from oncebench.run import lab as _lab
from oncebench.run import workdir as _workdir

_VARIANTS = ("claim", "acknowledged", "native", "two-phase", "idempotent")


def setup_cache():
    """Reports by (variant, killed)."""
    cells = [
        cell
        for cell in _scenario.quick(_scenario.Cell("", "", "", rate=2000.0, sessions=200))
        if cell.sink == "kafka" and cell.variant in _VARIANTS
    ]
    reports = {}
    with tempfile.TemporaryDirectory() as folder, _lab.open_lab(Path(folder) / "lab") as here:
        for number, cell in enumerate(cells):
            with _workdir.open_work_dir(Path(folder) / str(number)) as work:
                reports[cell.variant, cell.faulted] = _measure.measure(cell, here, work.path)
    return reports


# Ten cells of about 40 s each on two cores, and twice that on a busy machine.
setup_cache.timeout = 900


class Cost:
    """Of a healthy run at 2,000 events/s."""

    params, param_names = [_VARIANTS], ["variant"]
    version, unit = "2", "ms"

    def track_latency_p50_ms(self, reports, variant):
        return reports[variant, False]["latency_ms"]["p50"]

    def track_latency_p99_ms(self, reports, variant):
        return reports[variant, False]["latency_ms"]["p99"]

    def track_batch_ms(self, reports, variant):
        return reports[variant, False]["batches"]["trigger_ms"]


class Promise:
    """Of a run that was killed where it tells most: anything but 0 is a broken promise."""

    params, param_names = [_VARIANTS], ["variant"]
    version, unit = "2", "broken promises"

    def track_broken(self, reports, variant):
        return int(reports[variant, True]["verdict"] != "kept")
