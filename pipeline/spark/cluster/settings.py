"""Spark's settings for a cluster: how executors get jars, code and the driver's address."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping

from oncebench.delivery.contract import SinkKind
from oncebench.jobs.session import EXECUTORS, REDACTED, REDACTION
from oncebench.kafka_access.forms import jvm_options
from pipeline.config import PipelineConfig
from pipeline.spark.cluster.archive import NAME
from pipeline.spark.cluster.masters import bind_address, driver_address, is_standalone

_JARS, _PATH = "spark.jars", f"{EXECUTORS}PYTHONPATH"
# Spark shows the URI of a server, with its password, in its web page and its event log. It hides settings by this
# pattern.
_HIDDEN = f"{REDACTED}|^{re.escape(EXECUTORS)}"
# With dynamic allocation Spark has no executor before the first task, and a start waits for one before that
# (`pipeline.spark.cluster.executors`).
_LEAST = "spark.dynamicAllocation.minExecutors"
# Where executors connect, and where the driver listens.
HOST, BIND = "spark.driver.host", "spark.driver.bindAddress"
# A job's own values are added to these; all other settings of a job replace ours.
ADDED_TO = (_JARS, _PATH)
# Set by the user where executors have their Python elsewhere. Spark's own launcher reads it, which does not start us.
PYTHON = "spark.pyspark.python"


def cluster_settings(config: PipelineConfig) -> dict[str, str]:
    """Returns the settings by which a cluster's executors can run the tasks of this pipeline.

    The driver's file server has the jars. The archive of the code is in the folder where an executor's Python starts.
    A job's own jars and PYTHONPATH are added to these. The driver listens where the job lets executors connect. Spark
    shows no variable of executors, because some hold passwords.
    """
    own: Mapping[str, str] = config.spark
    found = {
        _JARS: ",".join(filter(None, (*config.driver_jars, *config.jars, own.get(_JARS)))),
        _PATH: os.pathsep.join(filter(None, (NAME, own.get(_PATH)))),
        REDACTION: _HIDDEN,
        _LEAST: "1",
    }
    if options := jvm_options(config.kafka_client):
        found["spark.executor.extraJavaOptions"] = shlex.join(options)
    if HOST in own:
        return {**found, BIND: bind_address(own[HOST])}
    address = driver_address(config.master) if is_standalone(config.master) else None
    return found if address is None else {**found, HOST: address, BIND: address}


def environment_of(kind: SinkKind, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of this process that a sink's tasks read."""
    return {name: environment[name] for name in kind.environment if name in environment}


def for_executors(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that give executors these variables."""
    return {f"{EXECUTORS}{name}": value for name, value in variables.items()}
