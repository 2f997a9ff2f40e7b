"""Removes times and prices from the report of a run whose clock was moved.

Promise: every such figure becomes null, because it is not known which of them the movement changed. Counts stay, and so
do durations that Spark measures itself, by the monotonic clock.
"""

from __future__ import annotations

from typing import Any

from oncebench.audit.python.latency import Distribution
from oncebench.report.measures.recovery import Recovery


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    """Returns the report without times: null for each figure, and an empty timeline.

    The figures are latencies, throughput, steadiness, bottleneck, recoveries, processor times and prices.
    """
    nothing = Distribution().as_json()
    return {
        **report,
        "throughput": dict.fromkeys(report["throughput"]),
        **dict.fromkeys(("latency_ms", "visibility_gap_ms", "append_latency_ms"), nothing),
        "latency_curve_ms": None,
        "timeline": {},
        "steadiness": dict.fromkeys(report["steadiness"]),
        **dict.fromkeys(("bottleneck", "price", "cpu_s_per_million_events", "pipeline_cpu_s_per_million_events")),
        "recovery": Recovery().as_json(),
        "faults": [{**fault, "recovery": None} for fault in report["faults"]],
    }
