"""Whether a restart helps a job, by the exception that ended its query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException

from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, NoKafka, RefusedStart
from oncebench.jobs import exit_code, exits
from pipeline import __main__ as pipeline

TRACEBACK = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function.
Traceback (most recent call last):
  File "oncebench/jobs/query.py", line 1, in each_batch
{}
\tat py4j.Protocol.getReturnValue(Protocol.java:476)
"""


class OfQuery(StreamingQueryException):
    """An exception of a query, as `awaitTermination` raises it."""

    def __init__(self, text: str, cause: str) -> None:
        self.text = text
        self._cause: Any = SimpleNamespace(_desc=cause, _cause=None)

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("error", "code"),
    [(RefusedStart("a"), 2), (AnotherDriver("a"), 2), (NoKafka("a"), 1), (DeliveryFailed("a"), 1)],
    ids=lambda value: type(value).__name__,
)
def test_an_error_of_deliver_has_the_code_of_its_class(error: Exception, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        ("oncebench.delivery.errors.NondeterministicReplay: batch 3 made other rows", 2),
        ("oncebench.delivery.errors.AnotherDriver: another driver was started", 2),
        ("oncebench.delivery.errors.DeliveryFailed: batch 3: no answer", 1),
        ("oncebench.delivery.errors.RefusedStart: a\noncebench.delivery.errors.DeliveryFailed: b", 1),
        ("ValueError: a bug in the query", 1),
    ],
)
def test_a_query_ends_with_the_code_of_the_error_in_its_text(raised: str, code: int) -> None:
    text = TRACEBACK.format(raised)
    assert exit_code(OfQuery(text, text)) == code


def test_a_cause_in_spark_that_no_restart_mends_has_its_code() -> None:
    assert exit_code(OfQuery("org.nope.Provider", "java.lang.ClassNotFoundException: org.nope.Provider")) == 2


def test_a_job_and_the_pipeline_end_with_the_same_codes() -> None:
    codes = (pipeline.RESTART_HELPS, pipeline.NO_RESTART_HELPS)
    assert codes == (exits.RESTART_HELPS, exits.NO_RESTART_HELPS)
