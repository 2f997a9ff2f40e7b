"""Runs PySpark's worker daemon with a check of its machine, and with early imports.

The daemon imports the workers' modules before it forks.

On a cluster, the check refuses a machine that lacks files of the job (`pipeline.spark.cluster.machines`).

Promise: the imports change only the time. With them, a worker starts at once. Without them, each worker would import
pandas, Arrow and the Kafka client, which takes a second of processor time. A restart after a fault would need four such
seconds. The stateful operator's calls wait less, because the module also loads `pipeline.spark.stateful_worker`. The
setting is `spark.python.daemon.module`; the daemon itself is PySpark's.
"""

import gc
import importlib
import signal
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from pyspark import daemon

from pipeline.spark.cluster.machines import refuse_machine
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
    "oncebench.sinks.kafka.rows.writers",
)


class _Signals:
    """The module `signal` for PySpark's daemon, which then ignores SIGTERM and SIGINT.

    A service manager sends SIGTERM to every process of a job, and the batch must be able to end. The daemon still ends
    with the JVM: its standard input is then closed.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Callable[..., None] | int) -> Any:
        """Sets a handler, but ignores what ends the job."""
        ignored = number in (signal.SIGTERM, signal.SIGINT)
        return signal.signal(number, signal.SIG_IGN if ignored else handler)


if __name__ == "__main__":
    refuse_machine()  # Spark passes on this error as that of the task
    for _name in _IMPORTED:
        if find_spec(_name) is not None:  # a user's own job may lack a sink
            importlib.import_module(_name)
    install()
    # PySpark's workers collect garbage after every task, and the next task waits. Frozen objects are never collected.
    gc.freeze()
    setattr(daemon, "signal", _Signals())  # noqa: B010  the daemon does not declare the name
    daemon.manager()
