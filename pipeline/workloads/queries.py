"""The queries that this pipeline can run, by the name of their workload.

A query is imported only when it is needed, because a copy of the pipeline with its own query lacks the other files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from pyspark.sql import DataFrame, SparkSession

from pipeline.config import RECORDS, SESSIONS, WINDOWS, PipelineConfig

Query = Callable[[SparkSession, PipelineConfig], DataFrame]
# The module of each query. Its function is `query`.
QUERIES: Mapping[str, str] = {
    SESSIONS: "pipeline.query",
    WINDOWS: "pipeline.workloads.windows",
    RECORDS: "pipeline.workloads.records",
}


def query_of(workload: str) -> Query:
    """Returns the query of a workload."""
    return cast(Query, import_module(QUERIES[workload]).query)
