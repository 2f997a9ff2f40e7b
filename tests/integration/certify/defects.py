"""The sinks in `sinks/`: what each scenario and each test must find in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oncebench.delivery.contract import AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.downloads.maven import jars
from oncebench.sinks.registry import SINKS

CLEAN = "upsert"
# Scenario -> the sink that it finds out, and by which anomaly.
DEFECTS: Mapping[str, tuple[str, str]] = {
    "healthy": ("first_rows", "LOSS"),
    "kill-at-batch-start": ("own_numbers", "LOSS"),
    "kill-amid-call": ("append", "DUP"),
    "kill-before-return": ("append", "DUP"),
    "kill-amid-write": ("mark_after_write", "DUP"),
    "kill-after-call": ("append", "DUP"),
    "kill-after-commit-log": ("own_numbers", "LOSS"),
    "double-kill": ("append", "DUP"),
    "kill-worker": ("append", "DUP"),
    "zombie": ("append", "DUP"),
    "zombie-amid-call": ("check_then_write", "DUP"),
    "replay": ("append", "DUP"),
    "random-kills": ("own_numbers", "LOSS"),
}


# More sinks that a scenario must find out: sink -> scenario, the guarantee that it breaks, and an anomaly.
MORE: Mapping[str, tuple[str, str, str]] = {
    "count_then_write": ("kill-amid-write", EXACTLY_ONCE, "DUP"),
    # It loses batches that no failure has touched.
    "own_numbers": ("kill-after-call", AT_MOST_ONCE, "LOSS"),
}


def _jars(sink: str) -> str:
    return ",".join(str(jar) for bundle in SINKS[sink].jars for jar in jars(bundle))


def delta() -> dict[str, str]:
    """Returns the Spark settings that a Delta table needs."""
    return {**SINKS["delta"].spark, "spark.jars": _jars("delta")}


# Sinks that users write with public packages, each with a scenario that finds its defect, and the anomaly.
PUBLIC: Mapping[str, tuple[str, str, Callable[[], dict[str, Any]]]] = {
    "Spark's file sink, read without _spark_metadata": (
        "kill-amid-call",
        "DUP",
        lambda: {
            "format": "parquet", "options": {"path": "$ONCEBENCH_OUTPUT/rows"}, "read": "parquet_reader:read_rows",
        },
    ),
    "a Delta append without txnVersion": (
        "kill-after-call",
        "DUP",
        lambda: {"write": "table_sinks:append_to_delta", "read": "table_sinks:read_delta", "spark": delta()},
    ),
    "a Kafka write that ignores batch_id": (
        "kill-amid-call",
        "DUP",
        lambda: {"write": "kafka_sinks:write_batch", "read": "kafka_sinks:read_rows", "setup": "kafka_sinks:empty"},
    ),
    "an upsert through JDBC by a random key": (
        "kill-after-call",
        "DUP",
        lambda: {
            "write": "table_sinks:upsert_by_random_key", "read": "table_sinks:read_postgres",
            "setup": "table_sinks:empty", "spark": {"spark.jars": _jars("postgres")},
        },
    ),
    "an early return on a batch that was seen": (
        "kill-amid-call",
        "LOSS",
        lambda: {"write": "sqlite_sinks:skip_seen", "read": "sqlite_sinks:read_rows"},
    ),
}  # fmt: skip

# Sinks of this project, each with its functions in `sinks/own_sinks.py`, and the scenarios that they must keep.
OWN: Mapping[str, Callable[[], dict[str, Any]]] = {
    "files": dict,
    "kafka": lambda: {"setup": "own_sinks:make_topic"},
    "postgres": lambda: {"setup": "own_sinks:make_table"},
    "delta": lambda: {"spark": delta()},
}
OWN_SCENARIOS = ("kill-amid-call", "kill-after-call", "zombie-amid-call")
