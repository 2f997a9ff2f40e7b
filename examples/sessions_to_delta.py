"""Writes the visits of each shop to a Delta table: orders with less than a minute between them, each exactly once."""

import sys
import traceback

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from oncebench.jobs import DeltaSink, deliver, exit_code

KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars.packages", f"{KAFKA},{DELTA}")
    .config("spark.stage.maxConsecutiveAttempts", "1")
    .config("spark.stage.ignoreDecommissionFetchFailure", "false")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.databricks.delta.snapshotPartitions", "2")  # of a small table; the default is 50
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
visits = sold.groupBy(f.session_window("at", "1 minute"), "shop").agg(f.count("*").alias("orders"))
rows = visits.select("shop", f.col("session_window.start").alias("began"), "orders")

sink = DeltaSink("visits", sink_id="visits-1")
try:
    writer = deliver(rows, sink, guarantee="exactly-once", checkpoint="state/visits")
    writer.trigger(processingTime="1 second").start().awaitTermination()
except Exception as error:
    traceback.print_exc()
    sys.exit(exit_code(error))
