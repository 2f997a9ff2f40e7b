"""The query that passes each of the user's own records to the sink, one row per record.

It is stateless, and all of it runs in the JVM. The rows are shuffled by the record's key. So a key with many records
makes a large task, as in a job that groups by this key. A record without a key goes to a task by its id.

Promise: a row depends on its record alone, and so does its task. Therefore a replayed batch makes the same rows.

What can go wrong: a record of the input topic that is not an event of the suite's generator stops the query.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pipeline.config import PipelineConfig
from pipeline.query import records
from pipeline.workloads.settings import DIGEST_DIGITS

_FIELDS = "id string, load string, n bigint, scheduled_at bigint, record string"
_NOT_AN_EVENT = (
    "the workload records cannot read this record of the input topic; it takes the events of the suite's generator "
    "only: "
)


def query(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """Returns the streaming rows: the columns of `pipeline.rows.SCHEMA` and `record`.

    There is no quarantine column.

    `session_key` is the event's id, `total` the number of the record's bytes, `checksum` the beginning of its SHA-256.
    """
    text = f.col("value").cast("string")
    event = f.from_json(text, _FIELDS)
    whole = event["id"].isNotNull() & event["scheduled_at"].isNotNull() & event["record"].isNotNull()
    refused = f.raise_error(f.concat(f.lit(_NOT_AN_EVENT), f.coalesce(text, f.lit("null"))))
    checked = f.when(f.coalesce(whole, f.lit(False)), event).otherwise(refused)
    found = records(spark, config).select(f.col("key").cast("string").alias("key"), checked.alias("event"))
    spread = found.withColumn("by", f.coalesce("key", "event.id")).repartition(config.partitions, "by")
    digest = f.substring(f.sha2("event.record", 256), 1, DIGEST_DIGITS)
    return spread.select(
        f.col("event.id").alias("session_key"),
        f.lit(0).alias("j"),
        f.lit(1).alias("events"),
        f.octet_length("event.record").cast("bigint").alias("total"),
        f.conv(digest, 16, 10).cast("bigint").alias("checksum"),
        f.col("event.scheduled_at").alias("ended_at"),
        f.col("event.record").alias("record"),
    )
