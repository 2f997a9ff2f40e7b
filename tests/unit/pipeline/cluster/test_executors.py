"""Why executors do not come, and what their logs say."""

from __future__ import annotations

import pytest

from oncebench.delivery.errors import QueryDied, RefusedStart
from pipeline.spark.cluster.executors import ROOM_S, trouble
from pipeline.spark.cluster.workers import Executors, Worker, cause_in

WORKER = Worker("one", "http://one:8081", cores=4, memory_mb=4096, cores_used=4, memory_used_mb=3072)
# Written by hand after the form of Spark's logs: an agent that is missing, and a driver that cannot be reached.
NO_AGENT = """==== Bytes 0-900 of 900 of /work/app-1/0/stderr ====
Spark Executor Command: "/usr/lib/jvm/java-17/bin/java" "-cp" "/opt/spark/jars/*"
========================================

WARNING: Using incubator modules: jdk.incubator.vector
Error opening zip file or JAR manifest missing : /nowhere/agent.jar
Error occurred during initialization of VM
agent library failed Agent_OnLoad: instrument
"""
NO_DRIVER = """Exception in thread "main" java.lang.reflect.UndeclaredThrowableException
\tat org.apache.hadoop.security.UserGroupInformation.doAs(UserGroupInformation.java:1780)
Caused by: java.io.IOException: Failed to connect to /10.0.0.9:41111
\tat org.apache.spark.network.client.TransportClientFactory.createClient(TransportClientFactory.java:294)
Caused by: java.net.ConnectException: Connection refused
"""
KILLED = """26/11/27 11:32:53 INFO CodeGenerator: Code generated in 263.905684 ms
26/11/27 11:32:53 INFO Executor: Finished task 0.0 in stage 0.0 (TID 0). 3076 bytes result sent to driver
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (NO_AGENT, "Error opening zip file or JAR manifest missing : /nowhere/agent.jar"),
        (NO_DRIVER, "java.net.ConnectException: Connection refused"),
        (KILLED, None),
        ("", None),
    ],
)
def test_the_innermost_cause_of_a_log_is_found(log: str, cause: str | None) -> None:
    assert cause_in(log) == cause


def none(*_: object) -> str | None:
    return None


def test_executors_that_end_are_refused_with_their_log() -> None:
    ended = [Executors(WORKER, frozenset({"2"}), frozenset({"0", "1"}))]
    wrong = trouble(ended, 1.0, "1g", lambda worker, number: f"{worker.host} {number} said why")
    assert isinstance(wrong, RefusedStart)
    assert "Executor 0 on one logged: one 0 said why. Correct" in str(wrong)
    unread = trouble(ended, 1.0, "1g", none)
    assert "see stderr of executor 0 in the worker's folder work" in str(unread)


def test_one_end_of_an_executor_may_be_bad_luck() -> None:
    assert trouble([Executors(WORKER, frozenset({"1"}), frozenset({"0"}))], 1.0, "1g", none) is None


def test_a_cluster_without_room_is_named_with_what_is_free() -> None:
    idle = [Executors(WORKER, frozenset(), frozenset())]
    assert trouble(idle, ROOM_S - 1, "2g", none) is None
    wrong = trouble(idle, ROOM_S + 1, "2g", none)
    assert isinstance(wrong, QueryDied), "another application may end"
    assert "asks for 1 core and 2g of memory, and the workers have free: one 0 cores and 1024 MB" in str(wrong)


def test_a_starting_executor_has_room() -> None:
    starting = [Executors(WORKER, frozenset({"0"}), frozenset())]
    assert trouble(starting, ROOM_S + 1, "1g", none) is None
    assert trouble([], ROOM_S + 1, "1g", none) is None, "no page answers, so nothing is known"
