"""Counts the orders of each shop and minute in a PostgreSQL table, each minute exactly once."""

import sys
import traceback

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from oncebench.jobs import PostgresSink, deliver, exit_code

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
order = f.from_json(f.col("value").cast("string"), "order_id string, shop string, cents long, at timestamp")
sold = orders.select(order.alias("order")).select("order.*").withWatermark("at", "10 seconds")
minutes = sold.groupBy(f.window("at", "1 minute"), "shop").agg(
    f.count("*").alias("orders"), f.sum("cents").alias("cents")
)
rows = minutes.select("shop", f.col("window.start").alias("minute"), "orders", "cents")

sink = PostgresSink("sales", sink_id="sales-1")
try:
    writer = deliver(rows, sink, guarantee="exactly-once", checkpoint="state/sales")
    writer.trigger(processingTime="1 second").start().awaitTermination()
except Exception as error:
    traceback.print_exc()
    sys.exit(exit_code(error))
