"""Connects a query to a sink: `deliver`, the start of a driver, and the delivery of each batch."""

from oncebench.delivery.quarantine import Quarantine
from oncebench.jobs.query import deliver
from oncebench.jobs.sinks import DeltaSink, FilesSink, KafkaSink, PostgresSink, SqliteSink

__all__ = ["DeltaSink", "FilesSink", "KafkaSink", "PostgresSink", "Quarantine", "SqliteSink", "deliver"]
