"""Copies orders from one Kafka topic to another, each exactly once."""

import sys
import traceback

from pyspark.sql import SparkSession

from oncebench.jobs import KafkaSink, deliver, exit_code

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
rows = orders.select("key", "value").repartition(2, "key")

sink = KafkaSink("orders-checked", bootstrap_servers="broker1:9092", sink_id="orders-1")
try:
    writer = deliver(rows, sink, guarantee="exactly-once", checkpoint="state/orders")
    writer.trigger(processingTime="1 second").start().awaitTermination()
except Exception as error:
    traceback.print_exc()
    sys.exit(exit_code(error))
