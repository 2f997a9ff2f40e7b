"""Finds the cause of a query's failure, for the last line of the log."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import cast

from py4j.protocol import Py4JError

from oncebench.delivery import errors
from oncebench.delivery.errors import AnotherDriver, PipelineError, QueryDied
from oncebench.delivery.journal import Journal

_log = logging.getLogger(__name__)
_TRACEBACK = "Traceback (most recent call last):"
_ERROR = re.compile(r"\s*[A-Za-z_][\w.]*(: |$)")
# A task's own error in the text that Spark passes on.
_TASK_ERROR = re.compile(r"^oncebench\.delivery\.errors\.(\w+): (.+)$", re.MULTILINE)


def explain(failure: BaseException, journal: Journal) -> PipelineError:
    """Returns the cause of a failure as one of our errors.

    It looks for another driver first, then for an error that a task raised, then for the first cause in Java or Python.
    Call it while the JVM runs, because the JVM holds the texts.
    """
    if isinstance(failure, PipelineError):
        return failure
    try:
        journal.check_still_ours()
    except AnotherDriver as other:
        return other
    raised = _TASK_ERROR.findall(str(failure))
    if raised:
        name, text = raised[-1]
        kind = getattr(errors, name, PipelineError)
        return cast(PipelineError, kind(text))
    with suppress(Py4JError, OSError):
        _log.error("the query died:\n%s", failure)
    return QueryDied(
        f"{first_cause(failure)}. Mend the cause; the log has details. A restart then repeats what was not committed."
    )


def first_cause(failure: BaseException) -> str:
    """Returns Java's innermost exception, or Python's text (the last line of a traceback)."""
    try:
        cause = getattr(failure, "java_exception", None)
        while cause is not None and cause.getCause() is not None:
            cause = cause.getCause()
        lines = str(failure if cause is None else cause.toString()).splitlines()
    except (Py4JError, OSError):  # the JVM has died, and its texts are lost
        lines = []
    if any(_TRACEBACK in line for line in lines):
        lines = [line for line in lines if _ERROR.match(line)][-1:]  # the error's text may have more lines
    return "".join(lines[:1]).strip().rstrip(".") or type(failure).__name__
