"""Waits until a cluster has given executors to the driver.

If the cluster gives none, the error names the cause.

Spark itself waits forever and logs "Initial job has not accepted any resources". If executors end again and again, a
standalone master starts ten of them and then ends the application.

Promise: when the function returns, an executor has registered with the driver. Failures, each with the cause:

- The executors end (their own log).
- The workers have no room (what they have and what the job asks for).
- The executors do not reach the driver (its address).

The page of each worker reports the causes (`pipeline.spark.cluster.workers`).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from oncebench.delivery.errors import PipelineError, QueryDied, RefusedStart
from pipeline.spark.cluster import workers
from pipeline.spark.cluster.masters import is_standalone
from pipeline.spark.cluster.workers import Executors, Worker

_log = logging.getLogger(__name__)
# Spark's text for a task whose executor has ended.
_LOST = re.compile(r"ExecutorLostFailure \(executor (\d+)")
POLL_S = 0.2
LOOK_S = 3.0  # between two looks at the workers' pages, each of which the log notes
# The first end of an executor may be bad luck, for example a machine that goes down.
ENDS = 2
# A master gives free cores to a new application at once.
ROOM_S = 30.0
# An executor's JVM registers within 5 s on idle cores, and was seen to take 100 s on a busy machine.
START_S = 300.0
DEFAULT_MEMORY = "1g"  # Spark's own


def wait_for_executors(spark: SparkSession, master: str) -> None:
    """Returns when the first executor has registered.

    Raises:
        RefusedStart: executors end before they register.
        QueryDied: the cluster has no room, or its executors do not register in time.
    """
    application, memory = spark.sparkContext.applicationId, spark.conf.get("spark.executor.memory", DEFAULT_MEMORY)
    last_words = partial(workers.last_words, application)
    began = looked = time.monotonic()
    while not spark.sparkContext._jsc.sc().getExecutorIds().size():
        now = time.monotonic()
        if is_standalone(master) and now - looked >= LOOK_S:
            looked = now
            _log.warning("waiting for executors of %s, %.0f s", master, now - began)  # the suite takes it for life
            wrong = trouble(workers.executors(spark, master), now - began, memory or "", last_words)
            if wrong is not None:
                raise wrong
        if now - began > START_S:
            raise QueryDied(
                f"no executor of {master} has registered with this driver within {START_S:g} s. Executors connect to "
                f"{spark.conf.get('spark.driver.host')}: if they cannot, give spark.driver.host another address of "
                f"this machine. Their own logs are in the workers' folders work/{application}."
            )
        time.sleep(POLL_S)


def trouble(
    found: Sequence[Executors], waited_s: float, memory: str, last_words: Callable[[Worker, str], str | None]
) -> PipelineError | None:
    """Returns why executors will not register; None: they may.

    Args:
        found: the executors of this application on each worker whose page answers.
        waited_s: since the application was registered.
        memory: what an executor of this job asks for.
        last_words: returns the cause in the log of an executor that has ended.
    """
    ended = [(each, number) for each in found for number in sorted(each.ended)]
    if len(ended) >= ENDS:
        where, number = ended[0]
        said = last_words(where.worker, number) or f"see stderr of executor {number} in the worker's folder work"
        return RefusedStart(
            f"the executors end before they can work. Executor {number} on {where.worker.host} logged: {said}. Correct "
            "the setting or the machine that this names, then start again."
        )
    if found and waited_s > ROOM_S and not any(each.running for each in found):
        return QueryDied(
            f"no worker has started an executor for this job within {ROOM_S:g} s. An executor asks for 1 core and "
            f"{memory} of memory, and the workers have free: {_free(found)}. End other applications, or set "
            "spark.executor.memory and spark.executor.cores to what a worker has."
        )
    return None


def why_lost(spark: SparkSession, master: str, error: PipelineError) -> PipelineError:
    """Adds the cause in an executor's own log to the error of a batch that died with it.

    Returns the error unchanged on other masters, for other errors, and if the log names no cause (SIGKILL).
    """
    lost = _LOST.search(str(error))
    if lost is None or not is_standalone(master):
        return error
    with suppress(Py4JError):  # the JVM has died as well
        for each in workers.executors(spark, master):
            if lost[1] in each.ended:
                said = workers.last_words(spark.sparkContext.applicationId, each.worker, lost[1])
                return (
                    type(error)(f"{error} Executor {lost[1]} on {each.worker.host} logged: {said}.") if said else error
                )
    return error


def _free(found: Sequence[Executors]) -> str:
    parts = [
        f"{each.worker.host} {each.worker.cores - each.worker.cores_used} cores and "
        f"{each.worker.memory_mb - each.worker.memory_used_mb} MB" for each in found
    ]  # fmt: skip
    return ", ".join(parts)
