"""Whether a pipeline kept up with its load: a pure function of the report.

Promise: `why_not` names every reason, none means that it did. The conditions are Theodolite's (the lag's slope) and
Karimov's (latency does not rise; "Benchmarking Distributed Stream Data Processing Systems", ICDE 2018).
"""

from __future__ import annotations

from collections.abc import Iterator

from oncebench.reports.metrics import Report, why_no_speed

# Theodolite's threshold: the lag may grow by so much of the load.
LAG_SLOPE = 0.01
# Above what the medians of a steady probe's thirds differ by; a pipeline that falls behind slowly shows it in the lag.
LATENCY_RISE = 0.25
TOO_SHORT = "it was too short to tell"


def why_not(report: Report) -> Iterator[str]:
    """Reasons why a run's rate is none that can be kept up."""
    yield from why_no_speed(report)
    slope, rise = report["steadiness"]["lag_slope"], report["steadiness"]["latency_rise"]
    if slope is not None and slope >= LAG_SLOPE:
        yield f"the lag grew by {slope:.1%} of the load"
    elif slope is None or rise is None:
        yield TOO_SHORT
    elif rise >= LATENCY_RISE:
        yield f"latency rose by {rise:.0%}"
