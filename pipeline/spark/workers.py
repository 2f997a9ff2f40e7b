"""PySpark's worker daemon, with what every worker imports already imported before it forks.

Promise: nothing but time is changed. A worker starts at once instead of importing pandas, Arrow and the Kafka client
for itself, a second of processor time each, which a restart after a fault would pay for four times over.
(`spark.python.daemon.module`; the daemon itself is PySpark's.)
"""

import gc
import importlib
from importlib.util import find_spec

from pyspark.daemon import manager

# What the operator's and the writers' workers load; none of them starts a thread at import.
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
        if find_spec(_name) is not None:  # a job of one's own may have left a sink out
            importlib.import_module(_name)
    # PySpark's workers collect garbage after every task, and the next task waits for it: what was imported never is.
    gc.freeze()
    manager()
