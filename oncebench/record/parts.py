"""The forms of the parts of a run folder: which fields the audit and the report rely on.

Promise: one table per file, and nothing but tables; what a run writes fits them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.record.forms import (
    ANYTHING,
    COUNT,
    INTEGER,
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    Cases,
    Fields,
    Items,
    Kind,
    Maybe,
    Values,
    one_of,
)
from pipeline.failpoints import parse_fault
from pipeline.sinks.contract import DELIVERIES
from pipeline.sinks.registry import SINKS


def _is_fault(text: object) -> bool:
    try:
        return isinstance(text, str) and parse_fault(text) is not None
    except ValueError:
        return False


def _is_partition(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 10


FAULT = Kind("a fault such as after-commit:kill", _is_fault)
RATE = Kind('a number or "max"', lambda item: item == "max" or NUMBER.fits(item))
PARTITION = Kind("the number of a partition", _is_partition)

ASKED = Fields(
    {
        "sink": one_of(SINKS),
        "delivery": one_of(DELIVERIES),
        "variant": TEXT,
        "faults": Items(FAULT),
    },
    {
        "random_kills": COUNT,
        "rate": RATE,
        "sessions": COUNT,
        "shape": TEXT,
        "seed": INTEGER,
        "trigger_ms": COUNT,
        "partitions": COUNT,
        "max_events_per_batch": Maybe(COUNT),
        "transaction_timeout_ms": COUNT,
        "on_lost": TEXT,
        "checkpoint_writing": TEXT,
        "master": TEXT,
        "warmup_s": NUMBER,
    },
    closed=True,
)
CELL = Fields({"run": TEXT, "cell": ASKED})
PLAN = Fields(
    {"seed": INTEGER, "sessions": COUNT, "events": COUNT, "started_us": WHOLE},
    {"topic": TEXT, "rate": RATE, "shape": TEXT},
)

USE = Fields({"cpu_s": NUMBER, "peak_rss_bytes": COUNT, "written_bytes": COUNT}, closed=True)
FACTS = Fields(
    {
        "run": TEXT,
        "topics": Values(TEXT),
        "kafka": ANYTHING,
        "java": Maybe(TEXT),
        "interrupted": TRUTH,
        "uses": Values(USE),
    }
)

_ENDS = Values(Fields({"lso": COUNT, "hw": COUNT}, {"low": COUNT, "uncommitted": COUNT}), PARTITION)
ENDS = Fields(
    {"output": _ENDS, "input": _ENDS, "leftovers": Items(TEXT), "final_complete": TRUTH}, {"output_is_log": TRUTH}
)

_OFFSETS = Values(COUNT, PARTITION)
_BATCH = Fields(
    {
        "batch": WHOLE,
        "start_offsets": _OFFSETS,
        "end_offsets": _OFFSETS,
        "input_rows": COUNT,
        "duration_ms": Fields(
            {"triggerExecution": NUMBER},
            {"walCommit": NUMBER, "commitOffsets": NUMBER, "addBatch": NUMBER, "queryPlanning": NUMBER},
        ),
        "state": Items(Fields({"commitTimeMs": NUMBER}, {"numShufflePartitions": COUNT})),
    }
)
# A batch line written at the next start, for one whose own line a kill has prevented.
_RECOVERED = Fields(
    {
        "batch": WHOLE,
        "start_offsets": _OFFSETS,
        "end_offsets": _OFFSETS,
        "input_rows": Kind("0", lambda item: type(item) is int and item == 0),
    }
)


def _kind_of_progress(line: Mapping[str, Any]) -> str:
    return "recovered" if line.get("kind") == "batch" and line.get("recovered") else str(line.get("kind"))


PROGRESS = Cases(
    Fields({"kind": TEXT, "t_us": WHOLE}),
    _kind_of_progress,
    {"batch": _BATCH, "recovered": _RECOVERED, "sink": Fields({"batch": WHOLE, "timings_ms": Values(NUMBER)})},
)
HIT = Fields(
    {"fault": TEXT, "point": TEXT, "batch": WHOLE, "action": TEXT, "t_us": WHOLE},
    {"rows": Maybe(COUNT), "partition": Maybe(WHOLE), "seconds": NUMBER},
)
_LANDED = Fields({"point": TEXT, "batch": WHOLE})
TIMELINE = Cases(
    Fields({"event": TEXT, "t_us": WHOLE}),
    lambda line: str(line.get("event")),
    {"random-kill": Fields({"landed": Maybe(_LANDED)})},
)
OBSERVER = Fields({"t_us": WHOLE})
LOAD = Fields(
    {},
    {
        "summary": Fields(
            {},
            {
                "acknowledged": Maybe(COUNT),
                "lateness_ms": Maybe(Values(Maybe(NUMBER))),
                "sent_share": Maybe(NUMBER),
                "events_per_s": Maybe(NUMBER),
            },
        )
    },
)
