"""The queries that this pipeline can run, by the name of their workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from pipeline.config import SESSIONS, WINDOWS, PipelineConfig
from pipeline.query import query as sessions
from pipeline.workloads.windows import query as windows

QUERIES: Mapping[str, Callable[[SparkSession, PipelineConfig], DataFrame]] = {SESSIONS: sessions, WINDOWS: windows}
