"""Writes orders to a Kafka topic and to a PostgreSQL table: two queries in one process, each exactly once."""

import sys
import traceback

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from oncebench.jobs import KafkaSink, PostgresSink, deliver, exit_code

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0")
    .config("spark.stage.maxConsecutiveAttempts", "1")
    .config("spark.stage.ignoreDecommissionFetchFailure", "false")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
orders = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "broker1:9092")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .load()
)

records = orders.select("key", "value").repartition(2, "key")
topic = KafkaSink("orders-checked", bootstrap_servers="broker1:9092", sink_id="orders-1")

order = f.from_json(f.col("value").cast("string"), "order_id string, cents long").alias("order")
columns = orders.select(order).select("order.*").repartition(2, "order_id")
table = PostgresSink("orders", sink_id="orders-2")

try:
    to_topic = deliver(records, topic, guarantee="exactly-once", checkpoint="state/topic")
    to_table = deliver(columns, table, guarantee="exactly-once", checkpoint="state/table")
    for writer in (to_topic, to_table):
        writer.trigger(processingTime="1 second").start()
    spark.streams.awaitAnyTermination()
except Exception as error:  # a query has ended: a start of this job continues both from their checkpoints
    traceback.print_exc()
    sys.exit(exit_code(error))
