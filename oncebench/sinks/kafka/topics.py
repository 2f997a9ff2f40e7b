"""The topics of rows and rejected records for Spark's own Kafka sink: its options, and the routing of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from oncebench.delivery import quarantine

# This producer also writes rejected records of up to 1 MB, with our headers.
MAX_REQUEST_BYTES = 8 * 1024 * 1024
# Kafka's Java client keeps unsent records in 32 MB, and a record must fit.
_LARGEST_BYTES = 32 * 1024 * 1024


def options(client: Mapping[str, Any], limit: int | None = None) -> dict[str, str]:
    """Returns the options of Spark's Kafka sink for librdkafka settings of the cluster.

    Args:
        limit: bytes that a record of the output topic may have; None: unknown.
    """
    most = min(max(MAX_REQUEST_BYTES, limit or 0), _LARGEST_BYTES)
    given = {f"kafka.{name}": str(value) for name, value in client.items()}
    return {**given, "kafka.max.request.size": str(most), "includeHeaders": "true"}


def routed(rows: DataFrame, topic: str, quarantine_topic: str) -> DataFrame:
    """Adds the column `topic`, the target of each row.

    Accepted rows go to `topic`, rejected records to `quarantine_topic`.
    """
    if quarantine.COLUMN not in rows.columns:
        return rows.withColumn("topic", f.lit(topic))
    rejected, good = f.col(quarantine.COLUMN), f.col(quarantine.COLUMN).isNull()
    own_headers = f.col("headers") if "headers" in rows.columns else f.lit(None)
    reasons = f.array(*(_header(rejected, name) for name in ("reason", "source_partition", "source_offset")))
    key, value = f.col("key").cast("binary"), f.col("value").cast("binary")
    return rows.select(
        f.when(good, key).otherwise(rejected["key"]).alias("key"),
        f.when(good, value).otherwise(rejected["value"]).alias("value"),
        f.when(good, f.lit(topic)).otherwise(f.lit(quarantine_topic)).alias("topic"),
        f.when(good, own_headers).otherwise(reasons).alias("headers"),
    )


def _header(rejected: Column, name: str) -> Column:
    value = rejected[name].cast("string").cast("binary")
    return f.struct(f.lit(name).alias("key"), value.alias("value"))
