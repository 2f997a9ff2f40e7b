"""Two programs append the same batch to one Iceberg table. Both succeed."""

import sys
import tempfile

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

rows = pa.table({"batch": [7, 7], "n": [1, 2]})
retries = sys.argv[1] if len(sys.argv) > 1 else None

with tempfile.TemporaryDirectory() as folder:
    catalog = SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.sqlite", warehouse=folder)
    catalog.create_namespace("shop")
    properties = {"commit.retry.num-retries": retries} if retries else {}
    catalog.create_table("shop.orders", rows.schema, properties=properties)

    stopped = catalog.load_table("shop.orders")  # a driver that is stopped here ...
    successor = catalog.load_table("shop.orders")  # ... and the one that replaces it
    print("same snapshot:", stopped.metadata.current_snapshot_id == successor.metadata.current_snapshot_id)

    successor.append(rows, snapshot_properties={"batch": "7"})
    try:
        stopped.append(rows, snapshot_properties={"batch": "7"})  # it continues, with its old handle
        print("second append: succeeded")
    except CommitFailedException as error:
        print("second append:", type(error).__name__)

    table = catalog.load_table("shop.orders")
    print("batches:", [snapshot.summary["batch"] for snapshot in table.snapshots()])
    print("rows:", table.scan().to_arrow().num_rows, "of", rows.num_rows, "with pyiceberg", pyiceberg.__version__)
    catalog.close()
