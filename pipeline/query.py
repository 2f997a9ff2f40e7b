"""The query: from the input topic to rows. With `rows.py`, which names their columns, the file to change for your own.

Promise: its rows depend on the input alone, not on a clock, a random number or the order in which things came, so that
a batch that is run again makes the same rows. What can go wrong: a batch with more tasks than the pipeline has
partitions is refused, and so is a query without a shuffle by key at its end (groupBy, repartition by a column), which
gives it exactly as many, and each row the same task again.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncebench.delivery import quarantine
from pipeline.config import PipelineConfig
from pipeline.rows import ROW
from pipeline.sessions import OUTPUT_SCHEMA, Sessions

# Partitions of a batch may be read at different speed; events this much older than the newest are still in time for
# the session timer (which counts from the later of event and watermark).
WATERMARK_DELAY = "10 seconds"


def records(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """The input topic as a stream, as Spark's Kafka source gives it: key, value, partition, offset, timestamp."""
    options = {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "subscribe": config.input_topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        # How long the broker holds the answer to a fetch that finds nothing new; as shipped 500. A batch that reads on
        # elsewhere first waits for the answer to the last one's fetch, and after the last event before a pause nothing
        # ends that: its rows were seen half a second late. Nobody fetches between batches, so asking often is free.
        "kafka.fetch.max.wait.ms": "10",
        # Lost input is an error, never skipped over.
        "failOnDataLoss": "true",
        **{f"kafka.{name}": value for name, value in config.kafka.items()},
    }
    if config.max_events_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(config.max_events_per_batch)
    return spark.readStream.format("kafka").options(**options).load()


def query(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """The streaming rows of the input topic: the columns of `rows.SCHEMA`, and the quarantine column."""
    # Event time for the session timer is the record's, but never later than the batch (current_timestamp is the
    # batch's, from the offset log: the same in a replay): a record from the future must not expire every session.
    # The column is dropped again, so that Spark does not silently filter "late" records: none may vanish.
    seen_at = f.least("timestamp", f.current_timestamp()).alias("event_time")
    events = (
        records(spark, config)
        .select("key", "partition", "offset", "value", seen_at)
        .withWatermark("event_time", WATERMARK_DELAY)
        .select("key", "partition", "offset", "value", f.unix_millis("event_time").alias("event_ms"))
    )
    operator = Sessions(config.session_timeout_ms)
    found = events.groupBy("key").transformWithState(operator, OUTPUT_SCHEMA, "append", "eventTime")
    rejected = f.when(f.col("reason").isNotNull(), f.struct(*quarantine.FIELDS))
    return found.select(*ROW, rejected.alias(quarantine.COLUMN))
