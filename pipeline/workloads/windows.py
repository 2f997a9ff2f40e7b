"""The query from the input topic to counts and sums of events in windows.

Each key has tumbling event-time windows.

The query is Spark's own aggregation with a watermark in append mode. All of it runs in the JVM.

Promise: a window becomes one row, in the batch after the one in which the watermark passed the window's end. Spark's
offset log has the watermark of each batch, and the sums do not depend on an order. Therefore a replayed batch makes the
same rows. An event whose window the watermark has passed is dropped; Spark counts it (`numRowsDroppedByWatermark`).

What can go wrong: a record that is not an event in the suite's own spelling stops the query. All partitions share one
watermark. So an event that comes more than DELAY_MS after newer events may be dropped or not. This depends on the
batches. The generator leaves no such doubt (`loadgen.workloads`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pipeline.config import PipelineConfig
from pipeline.events import LAST_SEQ, MAX_SCHEDULED_AT, MAX_VALUE
from pipeline.query import records
from pipeline.workloads.settings import DELAY_MS, WINDOW_MS

_FIELDS = "session_key string, seq int, type string, value bigint, scheduled_at bigint"
_NOT_AN_EVENT = (
    "the workload windows cannot read this record of the input topic; it takes the events of the suite's generator "
    "only: "
)


def query(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """Returns the streaming rows, with the columns of `pipeline.rows.SCHEMA`.

    There is no quarantine column.

    `session_key` is the key and the beginning of the window in epoch ms, as `KEY@MS`; `j` is 0.
    """
    event = _event(f.col("key").cast("string"), f.col("value").cast("string"))
    events = (
        records(spark, config)
        .select(event.alias("event"))
        .select(
            f.col("event.session_key").alias("key"),
            f.timestamp_micros("event.scheduled_at").alias("event_time"),
            f.col("event.seq").cast("bigint").alias("seq"),
            "event.value",
        )
    )
    window = f.window("event_time", f"{WINDOW_MS} milliseconds")
    found = (
        events.withWatermark("event_time", f"{DELAY_MS} milliseconds")
        .groupBy(window.alias("window"), "key")
        .agg(
            f.count("*").cast("int").alias("events"),
            f.sum("value").alias("total"),
            # Depends on which event has which value, and on no order. Adding 1 makes seq 0 and value 0 count.
            f.sum((f.col("seq") + 1) * (f.col("value") + 1)).alias("checksum"),
        )
    )
    start_ms = f.unix_millis("window.start").cast("string")
    return found.select(
        f.concat("key", f.lit("@"), start_ms).alias("session_key"),
        f.lit(0).alias("j"),
        "events",
        "total",
        "checksum",
        f.unix_micros("window.end").alias("ended_at"),
    )


def _event(key: Column, text: Column) -> Column:
    """Returns the fields of a record, or stops the query."""
    event = f.from_json(text, _FIELDS)
    seq = event["seq"]
    kind = f.when(seq == 0, "start_event").when(seq == LAST_SEQ, "end_event").otherwise("entry_event")
    spelled = f.concat(
        f.lit('{"session_key":"'), key, f.lit('","seq":'), seq, f.lit(',"type":"'), kind, f.lit('","value":'),
        event["value"], f.lit(',"scheduled_at":'), event["scheduled_at"],
    )  # fmt: skip
    accepted = (
        f.startswith(text, spelled)  # a field `pad` may follow
        & seq.between(0, LAST_SEQ)
        & event["value"].between(0, MAX_VALUE)
        & event["scheduled_at"].between(0, MAX_SCHEDULED_AT)
    )
    refused = f.raise_error(f.concat(f.lit(_NOT_AN_EVENT), f.coalesce(text, f.lit("null"))))
    return f.when(f.coalesce(accepted, f.lit(False)), event).otherwise(refused)
