"""The ten steps of docs/at_work.md, as they stand there, on a Kafka with TLS, SCRAM and ACLs and a Spark cluster.

The commands of the page run one after the other, with the addresses and paths of the test. The job of step 10 is the
documented one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncebench.home import HOME
from oncebench.lab.lab import Lab
from oncebench.processes import child
from oncebench.processes.child import Child, tail
from oncebench.servers.spark_cluster import SparkCluster, start_spark_cluster
from tests import COMMAND, ROOT
from tests.example_jobs import PARTITIONS
from tests.integration.kafka_access.guarded import AUTHORISATION, Guarded
from tests.integration.kafka_access.secured import PASSWORD, Secured, make_user, secured_kafka
from tests.reading import committed_records
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

PAGE = (ROOT / "docs" / "at_work.md").read_text()
ORDERS = 200
LIMIT_S = 1200
VERDICT = "  verdict     kept"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("guarded"), **AUTHORISATION) as found:
        for name in ("bench", "orders"):
            make_user(found.broker, name)
        yield found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> Iterator[SparkCluster]:
    with start_spark_cluster(tmp_path_factory.mktemp("cluster"), lab.java, 2) as running:
        yield running


def steps() -> Mapping[int, Sequence[str]]:
    """The commands of each step."""
    section = PAGE.split("## Ten steps\n")[1].split("\n## ")[0]
    parts = re.split(r"\n\*\*(\d+)\. ", section)
    found = {}
    for number, text in zip(map(int, parts[1::2]), parts[2::2], strict=True):
        blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
        found[number] = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    return found


def properties(secured: Secured, user: str) -> str:
    """The documented file of settings, with the user and the authority of the test."""
    block = re.search(r"```\n(security\.protocol=.*?)```", PAGE, re.DOTALL)
    assert block is not None
    text = block[1].replace("bench", user)
    return text.replace("/etc/kafka/ca.pem", secured.trust()["ssl.truststore.location"])


def ran(folder: Path, line: str, places: Mapping[str, str]) -> str:
    """Runs a command of the page with the places of the test; returns what it printed."""
    for documented, own in places.items():
        line = line.replace(documented, own)
    program, *words = shlex.split(line)
    assert program == "oncebench"
    environment = {**os.environ, "PYTHONPATH": str(HOME), "KAFKA_PASSWORD": PASSWORD}
    command = [*COMMAND, *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert PASSWORD not in done.stdout + done.stderr
    return done.stdout


def test_each_of_the_ten_steps_works(secured: Secured, cluster: SparkCluster, lab: Lab, tmp_path: Path) -> None:
    documented = steps()
    assert list(documented) == list(range(1, 11))
    assert [len(lines) for lines in documented.values()] == [1, 1, 1, 1, 0, 1, 1, 1, 2, 1]
    places = {"broker1:9093": secured.servers(), "spark://master1:7077": cluster.address,
              "/shared": str(tmp_path / "shared")}  # fmt: skip
    for user, name in (("bench", "client.properties"), ("orders", "orders.properties")):
        (tmp_path / name).write_text(properties(secured, user))
    guarded = Guarded(secured.broker)
    for number, lines in documented.items():
        if number == 10:
            run_and_kill_the_job(secured, lab, tmp_path)
        for line in lines:
            said = ran(tmp_path, line, places)
            if " acls " in line:
                guarded.run(without_login(said))
            elif " run " in line:
                assert VERDICT in said, said
            elif " plan " in line:
                assert "partitions" in said


def without_login(printed: str) -> str:
    """The printed commands, as the test's own listener needs them."""
    return printed.replace(" --command-config admin.properties", "")


def run_and_kill_the_job(secured: Secured, lab: Lab, folder: Path) -> None:
    """The documented job copies orders, is killed, and copies the others after its next start."""
    for topic in ("orders", "orders-checked"):
        secured.broker.create_topic(topic, PARTITIONS)
    (folder / "job.py").write_text(job(secured, lab))
    send(secured, range(ORDERS))
    with start(folder, lab, 1) as running:
        wait_for("the first rows", lambda: not running.alive or len(orders_in(secured)) > 0, limit_s=LIMIT_S)
        assert running.alive, tail(running.log)
        running.kill_session()
    send(secured, range(ORDERS, 2 * ORDERS))
    with start(folder, lab, 2) as running:
        wait_for("all rows", lambda: not running.alive or len(orders_in(secured)) >= 2 * ORDERS, limit_s=LIMIT_S)
        assert running.alive, tail(running.log)
        running.kill_session()
    found = orders_in(secured)
    assert sorted(found) == sorted(f"o-{number}" for number in range(2 * ORDERS))


def job(secured: Secured, lab: Lab) -> str:
    """The job of examples/, with the lines of the page that reach a secured Kafka."""
    block = re.search(r"```python\n(from oncebench\.jobs import KafkaAccess.*?)```", PAGE, re.DOTALL)
    assert block is not None
    _, access, source, orders, sink, _ = [line for line in block[1].splitlines() if line]
    spark = lab.spark(())
    classes = os.pathsep.join([*spark["driver_jars"], *spark["jars"]])
    text = (ROOT / "examples" / "orders_to_kafka.py").read_text()
    text = text.replace("import KafkaSink", "import KafkaAccess, KafkaSink")
    text = re.sub(r'\.config\("spark\.jars\.packages", [^)]*\)',
                  lambda _: f'.config("spark.driver.extraClassPath", {classes!r})', text)  # fmt: skip
    text = re.sub(r"orders = \(.*?\n\)\n", lambda _: f"{access}\n{source}\n{orders}\n", text, flags=re.DOTALL)
    text = re.sub(r"sink = KafkaSink\(.*\)", lambda _: sink, text)
    return text.replace("broker1:9093", secured.servers())


def start(folder: Path, lab: Lab, number: int) -> Child:
    environment = {**lab.environment(), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(HOME),
                   "KAFKA_PASSWORD": PASSWORD}  # fmt: skip
    return child.start("the job", [sys.executable, "job.py"], folder / f"job-{number}.log", cwd=folder, env=environment)


def send(secured: Secured, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": secured.broker.bootstrap_servers, "enable.idempotence": True})
    for number in numbers:
        producer.produce("orders", key=f"o-{number}", value=json.dumps({"cents": number}))
    assert producer.flush(60) == 0


def orders_in(secured: Secured) -> list[str]:
    """The keys that a committed consumer gets, in any order."""
    records = committed_records(secured.broker.bootstrap_servers, "orders-checked")
    return [(record.key() or b"").decode() for record in records]
