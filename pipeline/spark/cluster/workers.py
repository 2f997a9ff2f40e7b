"""Reads a cluster's reports about the executors of an application.

The standalone cluster's master and workers give the reports.

The driver's client gets only the message that an executor has ended ("Command exited with code 1"). The executor's own
log is on the machine of its worker, whose page shows it. The master has the addresses of these pages.

Promise: reads only. What can go wrong: a page is switched off, or cannot be reached from here. Then its worker reports
nothing. Source: DeployMessages.RequestMasterState, JsonProtocol.writeWorkerState and LogPage of Spark 4.2.0.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pipeline.spark.cluster.masters import addresses

PAGE_LIMIT_S = 5.0  # a page of a worker answers in milliseconds
LOG_BYTES = 50_000  # the end of a log: a Java error with all of its causes has some 10 kB
LINE_CHARACTERS = 300
# In this order: Java's innermost cause, then the first error of the JVM or of a class.
_CAUSED = "Caused by: "
_WRONG = re.compile(r"\b(ERROR|[Ee]rror|Exception|Unrecognized|Invalid|Cannot|No such|not found)\b|Exception:|Error:")


@dataclass(frozen=True)
class Worker:
    """A worker of the cluster.

    Attributes:
        host: its machine.
        page: the address of its page; executors' logs are below.
        cores, memory_mb: what it gives to executors.
        cores_used, memory_used_mb: what executors of all applications have.
    """

    host: str
    page: str
    cores: int
    memory_mb: int
    cores_used: int = 0
    memory_used_mb: int = 0


@dataclass(frozen=True)
class Executors:
    """The executors of one application on one worker, by number."""

    worker: Worker
    running: frozenset[str]
    ended: frozenset[str]


def executors(spark: SparkSession, master: str) -> list[Executors]:
    """Returns the executors that each worker of the cluster has, or had, for this application.

    A worker whose page does not answer is left out.
    """
    found = []
    application = spark.sparkContext.applicationId
    for address in _pages(spark, master):
        with suppress(OSError, ValueError, KeyError, HTTPException):
            state = json.loads(_page(f"{address}/json/"))
            worker = Worker(
                re.sub(r"^https?://|:\d+$", "", address), address, state["cores"], state["memory"], state["coresused"],
                state["memoryused"],
            )  # fmt: skip
            running, ended = (
                frozenset(str(each["id"]) for each in state[name] if each["appid"] == application)
                for name in ("executors", "finishedexecutors")
            )
            found.append(Executors(worker, running, ended))
    return found


def last_words(application: str, worker: Worker, executor: str) -> str | None:
    """Returns the cause of an executor's end from its log, in one line; None: the log
    cannot be read, or names none."""
    query = urlencode({"appId": application, "executorId": executor, "logType": "stderr", "byteLength": LOG_BYTES})
    with suppress(OSError, HTTPException):
        return cause_in(_page(f"{worker.page}/log/?{query}"))
    return None


def cause_in(log: str) -> str | None:
    """Returns the line of an executor's log that names what went wrong; None: no line does."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("==== Bytes ")]
    caused = [line.removeprefix(_CAUSED) for line in lines if line.startswith(_CAUSED)]
    wrong = [line for line in lines if _WRONG.search(line)]
    found = caused[-1:] or wrong[:1]
    return found[0][:LINE_CHARACTERS].rstrip(".") if found else None


def _pages(spark: SparkSession, master: str) -> Iterator[str]:
    """The addresses of the workers' pages, from the masters."""
    jvm: Any = spark.sparkContext._jvm
    messages = jvm.org.apache.spark.deploy
    for host, port in addresses(master):
        with suppress(Py4JError):  # this master does not answer, another may
            ask = getattr(getattr(messages, "DeployMessages$RequestMasterState$"), "MODULE$")
            answer = jvm.java.lang.Class.forName("org.apache.spark.deploy.DeployMessages$MasterStateResponse")
            environment = jvm.org.apache.spark.SparkEnv.get().rpcEnv()
            reference = environment.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(host, port), "Master")
            state = reference.askSync(ask, jvm.scala.reflect.ClassTag.apply(answer))
            for worker in state.workers():
                yield worker.webUiAddress()


def _page(address: str) -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not know a cluster's workers
    with direct.open(address, timeout=PAGE_LIMIT_S) as answer:
        text: bytes = answer.read()
    return text.decode("utf-8", "replace")
