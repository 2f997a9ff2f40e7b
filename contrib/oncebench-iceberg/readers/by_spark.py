"""Reads an Iceberg table with Spark and Iceberg's runtime, and prints its rows.

The rows are JSON lines in a fixed order.

There is no Iceberg runtime for Spark 4.2, so this needs Spark 4.0 in an environment of its own:

    python -m venv /tmp/spark40 && /tmp/spark40/bin/pip install pyspark==4.0.4
    M=https://repo.maven.apache.org/maven2/org/apache/iceberg/iceberg-spark-runtime-4.0_2.13/1.11.0
    curl -O $M/iceberg-spark-runtime-4.0_2.13-1.11.0.jar
    /tmp/spark40/bin/python contrib/oncebench-iceberg/readers/by_spark.py \
        iceberg-spark-runtime-4.0_2.13-1.11.0.jar /data/warehouse/catalog.sqlite shop.orders

Spark reads the newest metadata file of the table, without a catalog.
"""

import json
import sys
import tempfile

from newest_metadata import newest_metadata
from pyspark.sql import SparkSession


def main(jar: str, catalog: str, table: str) -> None:
    metadata = newest_metadata(catalog, table)
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "spark.jars": jar,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",  # the jar is fetched from there, and the host's own name may be another
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": folder,
        }
        builder = SparkSession.builder.master("local[1]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        # A path to a metadata file is a table of its own: Iceberg's `StaticTableOperations` reads it.
        rows = [row.asDict(recursive=True) for row in spark.read.format("iceberg").load(metadata).collect()]
        spark.stop()
    print("\n".join(sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: by_spark.py JAR CATALOG_FILE NAMESPACE.TABLE")
    main(*sys.argv[1:])
