"""Looks up once the names of JVM classes that PySpark looks up in every batch.

A look-up goes to the JVM, and py4j tries a short name in every imported package. Each try that fails searches all jars
on the class path. A batch needs some ten look-ups, and they find the same classes in every batch.

Promise: only the time changes. A name that this version of Spark does not have is left out.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError

# What one batch asks for: `foreachBatch` wraps its session, `mapInArrow` makes a function of a class.
_NAMES = (
    "PythonSQLUtils",
    "PythonUtils",
    "SimplePythonFunction",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
)


def keep_names(jvm: Any) -> None:
    """Keeps the classes as attributes of the view of the JVM, where Python looks first."""
    for name in _NAMES:
        try:
            setattr(jvm, name, getattr(jvm, name))
        except Py4JError:
            continue
