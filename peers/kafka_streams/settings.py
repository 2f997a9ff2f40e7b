"""Computes every setting of the Kafka Streams job that differs from a default.

Each setting has its reason. A report contains all of them.

Promise: pure functions of the cell. The job adds no setting of its own (see `Settings.java`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncebench.delivery.contract import AT_LEAST_ONCE, EXACTLY_ONCE
from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import Cell
from peers.java_job import HEAP, WATERMARK_DELAY_MS, JavaJob
from peers.variant import Form, Variant

JOB = JavaJob(
    "kafka-streams", "Kafka Streams", "peer-kafka-streams", Path(__file__).with_name("java"), "oncebench.streams.Job"
)
# Shorter than 10 ms, the threads would do little but commit. Streams itself has no lower limit.
VARIANTS = Form("streams", ("rocksdb", "memory"), "commit", 10, "streams-rocksdb-100ms")
# Streams has no at-most-once.
GUARANTEES = {AT_LEAST_ONCE: "at_least_once", EXACTLY_ONCE: "exactly_once_v2"}
# Streams' own default under exactly-once; Kafka's producer has 60 s. After a kill with the state in memory, the next
# attempt waits until the broker has aborted the transaction that is still open.
TRANSACTION_TIMEOUT_MS = 10_000
# Default: 45 s. After a kill -9 the group waits so long for the dead member, and reads nothing meanwhile.
SESSION_TIMEOUT_MS = 10_000
# How often a task looks for sessions to remove: so many times per time-out of a session.
_LOOKS_PER_TIMEOUT = 10


def streams_options(cell: Cell, variant: Variant) -> dict[str, str]:
    """Returns the options of Streams and its clients, by their names in its configuration."""
    return {
        "processing.guarantee": GUARANTEES[cell.guarantee],
        # Default: 100 ms under exactly-once, 30 s under at-least-once.
        "commit.interval.ms": str(variant.interval_ms),
        # Default: 1. Each partition is a task, and gets a thread.
        "num.stream.threads": str(cell.partitions),
        # The default under exactly-once only.
        "main.consumer.isolation.level": "read_committed",
        "main.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "producer.linger.ms": "5",  # also the default of the producer; Streams' own default is 100 ms
        "producer.batch.size": "262144",  # default: 16 KiB, which a burst of 20 rows fills after six sessions
        "producer.max.request.size": str(8 * 1024 * 1024),  # the quarantine topic's max.message.bytes
        "producer.transaction.timeout.ms": str(cell.transaction_timeout_ms),
    }


def described(cell: Cell, variant: Variant) -> dict[str, Any]:
    """Returns all settings and versions, as a report contains them."""
    return {
        "versions": JOB.versions(("kafka-streams", "kafka-clients", "rocksdbjni")),
        "state": variant.state,
        "watermark_delay_ms": WATERMARK_DELAY_MS,
        "expiry_looks_per_timeout": _LOOKS_PER_TIMEOUT,
        "jvm": [f"-Xms{HEAP}", f"-Xmx{HEAP}"],
        "streams": streams_options(cell, variant),
    }


def check(cell: Cell) -> None:
    """Checks the transaction time-out, as Streams does at its start.

    The check there is `StreamsConfig.verifyEOSTransactionTimeoutCompatibility`.

    Raises:
        UserError: a transaction would time out before its commit (exit code 2).
    """
    interval_ms = VARIANTS.parse(cell.variant).interval_ms
    if cell.guarantee == EXACTLY_ONCE and cell.transaction_timeout_ms < interval_ms:
        raise UserError(
            f"--transaction-timeout {cell.transaction_timeout_ms} is shorter than the {interval_ms} ms between two "
            "commits. Each transaction would time out. Give a longer time-out, or a variant with a shorter interval",
            exit_code=ExitCode.USAGE,
        )
