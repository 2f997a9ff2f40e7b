"""The last line of a dead pipeline names the cause, its table's reason and what to do."""

from __future__ import annotations

import errno
import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection, JavaParameters, PythonParameters
from py4j.protocol import Py4JError
from pyspark.errors.exceptions.captured import StreamingQueryException

from oncebench.delivery.errors import PermanentFailure, QueryDied
from pipeline.failures import explain


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ("An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File x\n"
         "KeyError: 'Field \"reason\" does not exist'\n", "KeyError: 'Field \"reason\" does not exist'"),
        ("Traceback (most recent call last):\n  File x\nValueError: order 7 is bad\n  see the manual\n",
         "ValueError: order 7 is bad"),
        ("java.io.IOException: no disk.\n\tat x", "java.io.IOException: no disk"),
        ("\nBadSyntax: an empty line is before it\n", "BadSyntax: an empty line is before it"),
    ],
)  # fmt: skip
def test_the_last_line_of_a_dead_query_names_its_cause(told: str, cause: str) -> None:
    class Ours:
        def check_still_ours(self) -> None:
            """There is no other driver."""

    words = explain(RuntimeError(told), Ours())  # type: ignore[arg-type]
    assert type(words) is QueryDied
    assert str(words).startswith(f"{cause}. Correct the cause")


class Java:
    """An exception of the JVM, with its cause."""

    def __init__(self, text: str, cause: Java | None = None) -> None:
        self.toString, self.getCause = lambda: text, lambda: cause

    def getSQLState(self) -> str:
        raise Py4JError("it has no such method")


@pytest.mark.parametrize(
    ("outer", "inner", "end"),
    [
        ("org.apache.spark.SparkException: [CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] x",
         "java.io.FileNotFoundException: /checkpoint/state/0/0/1.sst (Operation not permitted)",
         " (a file of the state could not be written). Look at the rights and flags of its folder, and at the "
         "disks of `checkpoint` and `record`, which has "
         "Spark's temporary files. A restart then repeats what was not committed."),
        ("org.apache.spark.SparkException: Python worker failed to connect back.",
         "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back",
         " (a Python worker started too slowly). Check whether the machine is overloaded. A restart then repeats what "
         "was not committed."),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "java.io.EOFException",
         " (a Python worker was killed, perhaps for memory). If the kernel's log says so, give the machine more "
         "memory, or the JVM less (spark.driver.memory). A restart then repeats what was not committed."),
        ("org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] x",
         "com.fasterxml.jackson.core.JsonParseException: Unexpected character",
         " (a text cannot be parsed). Use the mode PERMISSIVE in the query, which gives null. A restart then repeats "
         "what was not committed."),
    ],
)  # fmt: skip
def test_an_outer_exception_explains_an_inner_one_that_nobody_knows(outer: str, inner: str, end: str) -> None:
    """As Spark 4.2 wraps them.

    A cause that is permanent by itself does not stop the job for good here.
    """

    class Ours:
        def check_still_ours(self) -> None:
            """There is no other driver."""

    failure: Any = RuntimeError("o1.collectToPython")
    failure.java_exception = Java(outer, Java(inner))
    words = explain(failure, Ours())  # type: ignore[arg-type]
    assert (type(words), str(words)) == (QueryDied, f"{inner}{end}")


def test_an_error_outside_of_a_batch_keeps_its_class() -> None:
    """What `StreamingQuery.exception` returns has a text without the class.

    A missing class would start again for ever.
    """

    class Ours:
        def check_still_ours(self) -> None:
            """There is no other driver."""

    class Query(StreamingQueryException):
        def __init__(self) -> None:
            self._cause: Any = SimpleNamespace(_desc="java.lang.ClassNotFoundException: org.nope.Provider", _cause=None)

        def __str__(self) -> str:
            return "org.nope.Provider"

    words = explain(Query(), Ours())  # type: ignore[arg-type]
    assert type(words) is PermanentFailure
    assert str(words).startswith("java.lang.ClassNotFoundException: org.nope.Provider (a jar is missing, or a setting")


def test_a_jvm_that_has_ended_is_told_from_another_server_that_refuses_a_connection() -> None:
    class Ours:
        def check_still_ours(self) -> None:
            """There is no other driver."""

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        pool = SimpleNamespace(pool=None)
        parameters = JavaParameters(port=unused.getsockname()[1])
        with pytest.raises(ConnectionRefusedError) as of_py4j:
            ClientServerConnection(parameters, PythonParameters(), pool, None).connect_to_java_server()
        with pytest.raises(ConnectionRefusedError) as of_another:
            socket.create_connection(unused.getsockname())
    said = str(explain(of_py4j.value, Ours()))  # type: ignore[arg-type]
    assert "Connection refused (Spark's JVM has ended). Look for its last errors in the log" in said
    assert "JVM" not in str(explain(of_another.value, Ours()))  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "ended"), [("", True), (". Trace:\nx", False)])
def test_a_call_without_an_answer_means_that_the_jvm_has_ended(text: str, ended: bool) -> None:
    class Ours:
        def check_still_ours(self) -> None:
            """There is no other driver."""

    words = explain(Py4JError(f"An error occurred while calling o380.isActive{text}"), Ours())  # type: ignore[arg-type]
    assert ("Spark's JVM has ended" in str(words)) == ended


def test_a_failed_disk_under_the_journal_does_not_hide_the_cause() -> None:
    class OnAFailedDisk:
        def check_still_ours(self) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    told = "java.io.FileNotFoundException: /checkpoint/offsets/.1.tmp (Input/output error)"
    words = explain(RuntimeError(told), OnAFailedDisk())  # type: ignore[arg-type]
    assert type(words) is QueryDied
    assert "(the disk or its connection failed). Look for errors of the disk in dmesg" in str(words)
