"""The form of a stored report: which fields the tables and the summary rely on.

Promise: a table and nothing but a table; what `make_report` makes fits it, and what fits it can be shown.
"""

from __future__ import annotations

from oncebench.judge.anomalies import CATALOGUE
from oncebench.judge.verdict import BROKEN, KEPT, UNKNOWN, VACUOUS
from oncebench.record.forms import COUNT, INTEGER, NUMBER, TEXT, TRUTH, Fields, Form, Items, Maybe, Values, one_of
from pipeline.sinks.contract import DELIVERIES
from pipeline.sinks.registry import SINKS


def _all(form: Form, *names: str) -> Fields:
    return Fields(dict.fromkeys(names, form))


_FIGURE = Maybe(NUMBER)
_FAULT = Fields(
    {"point": Maybe(TEXT), "batch": Maybe(INTEGER), "hit": TRUTH, "fault": TEXT, "lost": COUNT, "duplicated": COUNT}
)
REPORT = Fields(
    {
        "schema": INTEGER,
        "run": TEXT,
        "cell": Fields(
            {
                "sink": one_of(SINKS),
                "delivery": one_of(DELIVERIES),
                "variant": TEXT,
                "faults": Items(TEXT),
                "random_kills": COUNT,
            }
        ),
        "verdict": one_of((KEPT, BROKEN, UNKNOWN, VACUOUS)),
        "reasons": Items(TEXT),
        "anomalies": Values(COUNT, one_of(CATALOGUE)),
        "sessions": _all(COUNT, "acknowledged", "finished"),
        "rows": _all(COUNT, "expected", "visible", "lost", "duplicated"),
        "throughput": _all(_FIGURE, "events_per_s"),
        "latency_ms": Fields({"n": COUNT, **dict.fromkeys(("p50", "p95", "p99", "p999", "max"), _FIGURE)}),
        "batches": _all(_FIGURE, "trigger_ms"),
        "checkpoint": _all(_FIGURE, "share_of_batch"),
        "sink_ms": Values(_FIGURE),
        "cpu_s_per_million_events": _FIGURE,
        "recovery": _all(_FIGURE, "detect", "restart", "first_visible", "caught_up", "longest_gap"),
        "faults": Items(_FAULT),
        "seed": INTEGER,
        "reproduce": TEXT,
    }
)
