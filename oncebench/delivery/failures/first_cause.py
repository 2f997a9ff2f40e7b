"""The first cause of an error that Spark has passed on through Java and Python."""

from __future__ import annotations

import re
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.captured import StreamingQueryException

_TRACEBACK = "Traceback (most recent call last):"
_ERROR = re.compile(r"\s*[A-Za-z_][\w.]*(: |$)")


def first_cause(failure: BaseException) -> str:
    """Returns Java's innermost exception, or Python's text (the last line of a traceback)."""
    try:
        cause = getattr(failure, "java_exception", None)
        while cause is not None and cause.getCause() is not None:
            cause = cause.getCause()
        text = cause.toString() if cause is not None else (_of_query(failure) or [str(failure)])[0]
        lines = [line for line in text.splitlines() if line.strip()]  # a ParseException begins with an empty line
    except (Py4JError, OSError):  # the JVM has died, and its texts are lost
        lines = []
    if any(_TRACEBACK in line for line in lines):
        lines = [line for line in lines if _ERROR.match(line)][-1:]  # the error's text may have more lines
    return "".join(lines[:1]).strip().rstrip(".") or type(failure).__name__


def _of_query(failure: BaseException) -> list[str]:
    """Returns Java's exceptions behind `StreamingQuery.exception`, outermost first.

    PySpark keeps them as Python exceptions. The text of the query's own exception lacks the class of the first one.
    """
    found: list[str] = []
    cause = failure._cause if isinstance(failure, StreamingQueryException) else None
    while cause is not None:
        found.append(str(cause._desc))
        cause = cause._cause
    return found


def causes(failure: BaseException) -> list[str]:
    """Returns the first cause, then what Java's other exceptions say, from the inside out.

    An error condition may be in an outer one: Spark wraps the errors of a state's files.
    """
    outer = _of_query(failure)
    with suppress(Py4JError, OSError):  # the JVM has died
        cause = getattr(failure, "java_exception", None)
        while cause is not None:
            outer += str(cause.toString()).splitlines()[:1]
            cause = cause.getCause()
    return [first_cause(failure), *reversed(outer)]
