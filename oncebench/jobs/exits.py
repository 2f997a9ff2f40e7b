"""Finds out whether a restart helps a job whose query has ended.

Spark passes errors on as texts of its own exceptions. This module finds the cause in them: an error that the library
raised in a task or in the driver, or the first cause in Java or Python.
"""

from __future__ import annotations

import re
import traceback
from contextlib import suppress
from pathlib import Path
from typing import cast

from py4j.protocol import Py4JError, Py4JNetworkError

from oncebench.delivery import errors
from oncebench.delivery.errors import NO_RESTART_HELPS, RESTART_HELPS, PipelineError, QueryDied
from oncebench.delivery.failures import spark
from oncebench.delivery.failures.cause import REPEATED, UNKNOWN
from oncebench.delivery.failures.cause import failure as failure_of
from oncebench.delivery.failures.first_cause import causes
from oncebench.delivery.failures.postgres import of_sqlstate

# py4j's whole text if no answer came.
_UNANSWERED = re.compile(r"An error occurred while calling \S+")
# A task's own error in the text that Spark passes on. The text of a worker that did not start is indented.
_TASK_ERROR = re.compile(r"^ *oncebench\.delivery\.errors\.(\w+): (.+)$", re.MULTILINE)


def exit_code(error: BaseException) -> int:
    """Returns the exit code for the exception that ended a query, or that `deliver` raised.

    2: the next start would meet the same error, so a service manager must not start the job again. 1: it may start it
    again. Call it while Spark runs, because the JVM holds the texts. An error of an unknown cause gives 1.
    """
    return RESTART_HELPS if cause_of(error).restart_helps else NO_RESTART_HELPS


def cause_of(failure: BaseException) -> PipelineError:
    """Returns the cause of a failure as one of the library's errors; see `exit_code`."""
    if isinstance(failure, PipelineError):
        return failure
    return raised_in(failure) or of_spark(failure)


def raised_in(failure: BaseException) -> PipelineError | None:
    """Returns the library's error that Spark has passed on as a text; None if there is none."""
    raised = _TASK_ERROR.findall(str(failure))
    if not raised:
        return None
    name, text = raised[-1]
    kind = getattr(errors, name, PipelineError)
    return cast(PipelineError, kind(text))


def of_spark(failure: BaseException) -> PipelineError:
    """Returns the error for an exception of Spark, or of a function in the query."""
    first, *outer = causes(failure)
    cause = spark.JVM_ENDED if _jvm_has_ended(failure) else spark.of_text(first)
    state = sqlstate(failure) if cause is UNKNOWN else None
    cause = cause if state is None else of_sqlstate(state)
    if cause.permanent:
        return failure_of(cause, first)
    if cause is UNKNOWN:  # an outer cause only explains: as a permanent one, a wrong one would stop the job for good
        cause = next((each for each in map(spark.of_text, outer) if each is not UNKNOWN), UNKNOWN)
    reason = "" if cause is UNKNOWN else f" ({cause.reason})"
    return QueryDied(f"{first}{reason}. {cause.remedy or spark.OTHER.remedy}. {REPEATED}")


def _jvm_has_ended(failure: BaseException) -> bool:
    """Returns whether py4j could not reach the JVM, or got no answer.

    The JVM ends by itself when a task has no memory left.
    """
    if type(failure) is Py4JError and _UNANSWERED.fullmatch(str(failure)):
        return True
    frames = traceback.extract_tb(failure.__traceback__)
    unreached = isinstance(failure, (Py4JNetworkError, ConnectionError))
    return unreached and bool(frames) and "py4j" in Path(frames[-1].filename).parts


def sqlstate(failure: BaseException) -> str | None:
    """Returns the SQLSTATE of a JDBC driver's error, which Spark's own writer meets.

    Returns None if there is none.
    """
    cause = getattr(failure, "java_exception", None)
    with suppress(Py4JError, OSError):  # the JVM has died
        while cause is not None:
            with suppress(Py4JError):  # no SQLException: it has no such method
                return cast("str | None", cause.getSQLState())
            cause = cause.getCause()
    return None
