"""PySpark's worker daemon, which imports the workers' modules before it forks.

Promise: this changes only the time. A worker starts at once. Otherwise each worker would import pandas, Arrow and the
Kafka client, which takes a second of processor time. A restart after a fault would need four such seconds. The calls of
the stateful operator wait less (`pipeline.spark.stateful_worker`).
The setting is `spark.python.daemon.module`; the daemon itself is PySpark's.
"""

import gc
import importlib
from importlib.util import find_spec

from pyspark.daemon import manager

from pipeline.spark.stateful_worker import install

# The modules of the operator's and the writers' workers. None of them starts a thread at import.
_IMPORTED = (
    "pandas",
    "pyspark.sql.functions",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_util",
    "pyspark.worker",
    "oncebench.delivery.batch",
    "pipeline.query",
    "oncebench.sinks.kafka.writers",
)

if __name__ == "__main__":
    for _name in _IMPORTED:
        if find_spec(_name) is not None:  # a user's own job may lack a sink
            importlib.import_module(_name)
    install()
    # PySpark's workers collect garbage after every task, and the next task waits. Frozen objects are never collected.
    gc.freeze()
    manager()
