"""The query from the input topic to rows.

For your own query, change this file and `rows.py`.

Promise: the rows depend on the input alone, not on a clock, a random number or the order of arrival. Therefore a
replayed batch makes the same rows.

What can go wrong: under exactly-once, a sink may keep marks by task number. For such a sink, the pipeline refuses a
batch with more tasks than partitions. It also refuses a query that does not end with a shuffle by key (groupBy, or
repartition by a column). The shuffle makes exactly as many tasks as partitions, and a replay puts each row into the
same task.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncebench.delivery import quarantine
from oncebench.kafka_access.forms import to_spark
from pipeline.config import PipelineConfig
from pipeline.packing import PACKED_SCHEMA, pack
from pipeline.sessions import EVENTS_PER_ROW, OUTPUT_SCHEMA, Sessions

# No event is late for a watermark that is made of the batches' own times.
WATERMARK_DELAY = "0 seconds"


def records(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """Returns the input topic as a stream of key, value, partition, offset and timestamp."""
    options = {
        "subscribe": config.input_topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        # How long the broker holds the answer to a fetch that finds nothing new; default: 500. A batch that reads from
        # another offset first waits for the answer to the previous fetch. In a pause of the input no event ends that
        # wait, and the last rows would be seen half a second late. No fetches are sent between batches, so a short wait
        # costs nothing.
        "kafka.fetch.max.wait.ms": "10",
        # Spark's source looks up the topic's ends after each poll, and the consumer then drops what it has fetched and
        # not returned (InternalKafkaConsumer.fetch). With the default of 500 records a poll, it drops most of each
        # fetch. No poll returns more than one fetch (max.partition.fetch.bytes: 1 MiB), whatever this limit is.
        "kafka.max.poll.records": "1000000",
        # Lost input is an error and never skipped.
        "failOnDataLoss": "true",
        **to_spark(config.kafka_client),
    }
    if config.max_events_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(config.max_events_per_batch)
    return spark.readStream.format("kafka").options(**options).load()


def query(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """Returns the streaming rows: the columns of `rows.SCHEMA`, and the quarantine column."""
    columns = ("key", "partition", "offset", "value")
    packed = records(spark, config).select(*columns).mapInArrow(pack, PACKED_SCHEMA)
    # The watermark, which fires the session timers, follows the batches' times and no record's time: partitions are
    # read at different speed, and one with newer records would expire the sessions of the others. current_timestamp is
    # the batch's time from the offset log, equal in a replay. Spark puts this time into the code that it generates, and
    # would compile new code in every batch. It does not generate code for `transform`.
    times = f.transform(f.array("partition"), lambda _: f.current_timestamp())
    # The column is dropped afterwards, because Spark would silently filter "late" records, and none may be lost.
    packed = (
        packed.withColumn("event_time", times[0])
        .withWatermark("event_time", WATERMARK_DELAY)
        .select("key", "partition", "reason", "events", "texts")
    )
    operator = Sessions(config.session_timeout_ms)
    found = packed.groupBy("key").transformWithState(operator, OUTPUT_SCHEMA, "append", "eventTime")
    rejected = f.when(f.col("reason").isNotNull(), f.struct(*quarantine.FIELDS)).alias(quarantine.COLUMN)
    # A session is one row until here. A rejected record has no lists, and stays one row.
    parts = f.posexplode_outer(f.arrays_zip("totals", "checksums")).alias("j", "part")
    return found.select("session_key", "ended_at", rejected, parts).select(
        "session_key",
        "j",
        f.lit(EVENTS_PER_ROW).alias("events"),
        f.col("part.totals").alias("total"),
        f.col("part.checksums").alias("checksum"),
        "ended_at",
        quarantine.COLUMN,
    )
