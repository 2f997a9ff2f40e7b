"""Connects a query to a sink.

The package has `deliver`, the start of a driver, and the delivery of each batch. It takes the PySpark of the job, and
brings none.
"""

try:
    from oncebench.delivery.quarantine import Quarantine
    from oncebench.jobs.exits import exit_code
    from oncebench.jobs.inputs.checks import KafkaInput
    from oncebench.jobs.query import deliver
    from oncebench.jobs.sinks import DeltaSink, FilesSink, KafkaSink, PostgresSink, SqliteSink
    from oncebench.kafka_access.access import KafkaAccess
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        "deliver() needs PySpark 4.2, which is not installed here. On a cluster, run the job with the "
        "cluster's Python environment. Elsewhere, in your clone of oncebench: pip install '.[spark]'",
        name="pyspark",
    ) from None

__all__ = [
    "DeltaSink", "FilesSink", "KafkaAccess", "KafkaInput", "KafkaSink", "PostgresSink", "Quarantine", "SqliteSink",
    "deliver", "exit_code",
]  # fmt: skip
