"""Maintains a table of a local warehouse with Spark, and prints what each procedure returns.

    /tmp/spark40/bin/python contrib/oncebench-iceberg/maintenance/by_spark.py \
        iceberg-spark-runtime-4.0_2.13-1.11.0.jar:sqlite-jdbc-3.54.1.0.jar /data/warehouse shop.orders

`readers/by_spark.py` has the commands that install Spark 4.0 and the first jar. The second jar is
`org.xerial:sqlite-jdbc`, with which Spark opens the catalog's SQLite file.

The procedures are of Iceberg's runtime. They merge the data files, and expire all snapshots but the newest. They remove
files that no snapshot names and that are older than three days. The job that writes to the table may run meanwhile.
"""

import json
import sys
import tempfile
from datetime import UTC, datetime

from pyspark.sql import SparkSession

# The name under which pyiceberg stores the tables of a local warehouse.
CATALOG = "default"
# Two files of a partition are worth a merge here; Iceberg's own default is five.
PROCEDURES = (
    "rewrite_data_files(table => '{table}', options => map('min-input-files', '2'))",
    "expire_snapshots(table => '{table}', older_than => TIMESTAMP '{now}', retain_last => 1)",
    "remove_orphan_files(table => '{table}')",
)


def main(jars: str, warehouse: str, table: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        catalog = f"spark.sql.catalog.{CATALOG}"
        settings = {
            "spark.driver.extraClassPath": jars,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": folder,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{catalog}.uri": f"jdbc:sqlite:{warehouse}/catalog.sqlite",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": warehouse,
        }
        builder = SparkSession.builder.master("local[1]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        for procedure in PROCEDURES:
            call = procedure.format(table=table, now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"))
            rows = spark.sql(f"CALL `{CATALOG}`.system.{call}").collect()
            print(procedure.partition("(")[0], json.dumps([row.asDict() for row in rows]), flush=True)
        spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: by_spark.py JARS WAREHOUSE NAMESPACE.TABLE")
    main(*sys.argv[1:])
