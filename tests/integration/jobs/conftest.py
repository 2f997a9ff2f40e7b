"""A Spark session for jobs whose sinks need no settings of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from oncebench.jobs.session import SHUFFLES
from oncebench.lab.lab import Lab
from tests.spark_sessions import sinkless, spark_session


@pytest.fixture(scope="module")
def spark(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"))) as started:
        started.conf.set(SHUFFLES, "2")
        yield started
