"""Removes the figures of a run whose clock was moved: times between events that two clocks have seen.

Promise: every such figure becomes null, because nobody knows which of them the movement changed. Counts stay.
"""

from __future__ import annotations

from typing import Any

from oncebench.audit.python.latency import Distribution
from oncebench.report.measures.recovery import Recovery


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    """Returns the report with null for latencies, throughput and recoveries, and with an empty timeline."""
    nothing = Distribution().to_json()
    return {
        **report,
        "throughput": dict.fromkeys(report["throughput"]),
        **dict.fromkeys(("latency_ms", "visibility_gap_ms", "append_latency_ms"), nothing),
        "latency_curve_ms": None,
        "timeline": {},
        "steadiness": dict.fromkeys(report["steadiness"]),
        "recovery": Recovery().as_json(),
        "faults": [{**fault, "recovery": None} for fault in report["faults"]],
    }
