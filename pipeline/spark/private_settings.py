"""Starts the JVM of a Spark session without the session's settings in a command line.

PySpark passes each setting to spark-submit as `--conf NAME=VALUE`, and every user of a machine can read command lines.
Settings can hold secrets: the variables of executors have a database's password, and catalogs have a login.

Promise: spark-submit reads the settings from a file that only this user can read. The file is removed once the JVM
runs. The JVM's own options and its class path stay in its command line.

What can go wrong: a kill during the start leaves the file in the temporary folder of this pipeline, which the next
attempt removes (`pipeline.spark.temporary`).
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext

# PySpark's variable for the arguments of spark-submit, and its value if there is none.
_ARGUMENTS, _NO_ARGUMENTS = "PYSPARK_SUBMIT_ARGS", "pyspark-shell"
# What has a meaning in a file of Java's properties, in names and in values.
_ESCAPED = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\ :=#!"}, "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
)


def start_jvm(settings: Mapping[str, str]) -> None:
    """Starts the JVM for the next session of this process; a JVM that runs already is kept.

    Raises:
        PySparkRuntimeError, OSError: the JVM does not start.
    """
    handle, name = tempfile.mkstemp(prefix="settings-")  # for this user only
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.writelines(line_of(*pair) for pair in settings.items())
        with _arguments(f"--properties-file {shlex.quote(name)} --load-spark-defaults"):
            SparkContext._ensure_initialized()
    finally:
        Path(name).unlink()


def line_of(name: str, value: str) -> str:
    """Returns the line of a setting in a file of Java's properties."""
    return f"{name.translate(_ESCAPED)}={value.translate(_ESCAPED)}\n"


@contextmanager
def _arguments(first: str) -> Iterator[None]:
    """PySpark gives spark-submit these arguments before the user's own."""
    own = os.environ.get(_ARGUMENTS)
    os.environ[_ARGUMENTS] = f"{first} {own or _NO_ARGUMENTS}"
    try:
        yield
    finally:
        if own is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = own
