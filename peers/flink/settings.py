"""Computes every setting of the Flink job that differs from a default, with its reason.

A report contains all of them.

Promise: pure functions of the cell. The job adds no setting of its own (see `Settings.java`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.scenario.cell import Cell
from peers.java_job import HEAP, WATERMARK_DELAY_MS, JavaJob
from peers.variant import Form, Variant

JOB = JavaJob("flink", "Flink", "peer-flink", Path(__file__).with_name("java"), "oncebench.flink.Job")
# Flink keeps the state in a hash map on the heap, or in RocksDB. It refuses intervals below 10 ms
# (`CheckpointCoordinatorConfiguration.MINIMAL_CHECKPOINT_TIME`).
VARIANTS = Form("flink", ("hashmap", "rocksdb"), "checkpoint", 10, "flink-rocksdb-200ms")

# Flink's NONE may lose rows, and after a restart it may also repeat rows: it is no at-most-once.
GUARANTEES = {AT_MOST_ONCE: "NONE", AT_LEAST_ONCE: "AT_LEAST_ONCE", EXACTLY_ONCE: "EXACTLY_ONCE"}
# The connector's default. POOLING reuses a few transactional ids instead of one per checkpoint and subtask.
TRANSACTION_NAMING = "INCREMENTING"
# Flink's own list for Java 17 (`env.java.opts.all` of its config.yaml), as far as a mini-cluster needs it.
_OPENED = ("lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent",
           "util.concurrent.atomic", "util.concurrent.locks")  # fmt: skip


def jvm_options(java_major: int) -> list[str]:
    """Returns the options of the job's JVM."""
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    # Flink's memory segments use sun.misc.Unsafe, about which Java 24 and later print warnings.
    quiet = ["--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"] if java_major > 23 else []
    return [f"-Xms{HEAP}", f"-Xmx{HEAP}", *opened, *quiet]


def flink_options(cell: Cell, variant: Variant) -> dict[str, str]:
    """Returns Flink's options, by their names in its configuration."""
    return {
        "parallelism.default": str(cell.partitions),
        "taskmanager.numberOfTaskSlots": str(cell.partitions),
        # The connector's exactly-once expects aligned barriers. Unaligned barriers would overtake rows.
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.unaligned.enabled": "false",
        "execution.checkpointing.interval": f"{variant.interval_ms} ms",
        "execution.checkpointing.min-pause": "0 ms",
        "execution.checkpointing.max-concurrent-checkpoints": "1",
        # A restart after a kill continues from the newest checkpoint and takes care of its files.
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.state-recovery.claim-mode": "CLAIM",
        "execution.checkpointing.storage": "filesystem",
        "state.backend.type": variant.state,
        "execution.checkpointing.incremental": str(variant.state == "rocksdb").lower(),
        # Default: false. The job keeps no reference to a record that it has passed on.
        "pipeline.object-reuse": "true",
        # Default: 100 ms. How long an event may wait for others before the shuffle sends it.
        "execution.buffer-timeout.interval": "5 ms",
        # Default: 128 MB. RocksDB's caches and write buffers.
        "taskmanager.memory.managed.size": "256 mb",
        "taskmanager.memory.network.min": "64 mb",
        "taskmanager.memory.network.max": "64 mb",
        # Loopback only.
        "rest.bind-address": "127.0.0.1",
        "rest.address": "127.0.0.1",
        "rest.bind-port": "0",
        "jobmanager.bind-host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.host": "127.0.0.1",
    }


def consumer_options() -> dict[str, str]:
    """Returns the options of Kafka's consumer."""
    return {
        "isolation.level": "read_committed",
        "commit.offsets.on.checkpoint": "true",  # for monitoring only, as in pipeline/progress.py
        "partition.discovery.interval.ms": "-1",  # the number of partitions is fixed
    }


def producer_options(cell: Cell) -> dict[str, str]:
    """Returns the options of Kafka's producer for rows."""
    return {
        "acks": "all",
        "enable.idempotence": "true",
        "linger.ms": "5",  # also the default of librdkafka, which our sink uses
        "batch.size": "262144",  # default: 16 KiB, which a burst of 20 rows fills after six sessions
        # The connector's default of 1 hour exceeds the broker's limit of 15 minutes.
        "transaction.timeout.ms": str(cell.transaction_timeout_ms),
    }


def described(cell: Cell, variant: Variant, java_major: int) -> dict[str, Any]:
    """Returns all settings and versions, as a report contains them."""
    named = ("flink-runtime", "flink-connector-kafka", "kafka-clients", "frocksdbjni")
    return {
        "versions": JOB.versions(named),
        "guarantee": GUARANTEES[cell.guarantee],
        "transaction_naming": TRANSACTION_NAMING,
        "watermark_delay_ms": WATERMARK_DELAY_MS,
        "jvm": jvm_options(java_major),
        "flink": flink_options(cell, variant),
        "consumer": consumer_options(),
        "producer": producer_options(cell),
    }
