"""Spark sessions for tests that call Spark in their own process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from oncebench.delivery.contract import SinkKind
from oncebench.lab.lab import Lab
from pipeline.config import PipelineConfig
from pipeline.spark.session import session, stop
from pipeline.spark.sockets import short_sockets


def sinkless(lab: Lab, folder: Path, kinds: Iterable[SinkKind] = ()) -> PipelineConfig:
    """A configuration without topics and sink, with the jars of these sinks."""
    return PipelineConfig("", "", {}, "", "", "", "", "", folder, folder, **lab.spark(kinds))


@contextmanager
def spark_session(config: PipelineConfig, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Yields a session in a JVM of its own.

    A JVM keeps the jars and the sockets' folder of its first session (Spark's `PythonRDD.authHelper`). A later session
    in the same JVM would look for the sockets where that folder was.
    """
    with short_sockets(config) as given:
        spark = session(given, settings)
        try:
            yield spark
        finally:
            stop(spark)
            SparkContext._gateway = SparkContext._jvm = None  # the next session starts a JVM
