"""Whether a pipeline kept up with its load: a pure function of the report.

Promise: `why_not` names every reason, none means that it did. The conditions are Theodolite's (the lag's slope) and
Karimov's (latency does not rise; "Benchmarking Distributed Stream Data Processing Systems", ICDE 2018).
"""

from __future__ import annotations

from collections.abc import Iterator

from oncebench.reports.metrics import Report, why_no_speed

# Theodolite's threshold: the lag may grow by so much of the load. A lag goes up by a batch's worth and down again with
# every batch, so over 17 s of a probe with batches of 0.9 s its slope is known to 1.5 % only: it must be above this for
# sure (in standard errors). Simulated: of pipelines that keep up 2.5 % are taken for ones that don't (27 % without), of
# those that fall behind by 10 % none is missed.
LAG_SLOPE, FOR_SURE = 0.01, 2.0
# Above what the medians of a steady probe's thirds differ by: in 25 runs at half of what can be kept up with by 20 % or
# less but for three, on a machine that others slowed (results/runs/costs-kafka.jsonl). A pipeline that falls behind
# slowly shows it in the lag.
LATENCY_RISE = 0.25
TOO_SHORT = "it was too short to tell"


def fell_behind(report: Report) -> bool:
    """Whether the lag grew by more than LAG_SLOPE of the load for sure; False where a report does not tell."""
    seen = report.get("steadiness") or {}
    slope, error = seen.get("lag_slope"), seen.get("lag_slope_error") or 0.0
    return slope is not None and slope - FOR_SURE * error >= LAG_SLOPE


def why_not(report: Report) -> Iterator[str]:
    """Reasons why a run's rate is none that can be kept up."""
    yield from why_no_speed(report)
    seen = report["steadiness"]
    slope, rise = seen["lag_slope"], seen["latency_rise"]
    if fell_behind(report):
        yield f"the lag grew by {slope:.1%} of the load"
    elif slope is None or rise is None:
        yield TOO_SHORT
    elif rise >= LATENCY_RISE:
        yield f"latency rose by {rise:.0%}"
