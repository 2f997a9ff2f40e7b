"""What executors on other machines get from the driver."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.sinks.registry import SINKS
from pipeline.spark.cluster.archive import NAME, make_archive
from pipeline.spark.cluster.settings import environment_of, for_executors
from pipeline.spark.session import settings
from tests.unit.pipeline.test_second_try import CONFIG

MASTER = "spark://127.0.0.1:7077"


def test_executors_get_every_jar_and_the_code() -> None:
    found = settings(replace(CONFIG, master=MASTER))
    assert found["spark.jars"] == "kafka.jar,fs.jar,sink.jar"
    assert found["spark.executorEnv.PYTHONPATH"] == NAME
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert "spark.executor.extraClassPath" not in found, "its paths are those of this machine"


def test_a_jobs_own_jars_and_path_are_added() -> None:
    own = {"spark.jars": "own.jar", "spark.executorEnv.PYTHONPATH": "/opt/own", "spark.driver.host": "10.0.0.1"}
    found = settings(replace(CONFIG, master=MASTER, spark=own))
    assert found["spark.jars"] == "kafka.jar,fs.jar,sink.jar,own.jar"
    assert found["spark.executorEnv.PYTHONPATH"] == f"{NAME}:/opt/own"
    assert found["spark.driver.host"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("own", "listens"),
    [
        ({"spark.driver.host": "127.0.0.2"}, "127.0.0.2"),  # an address of this machine
        ({"spark.driver.host": "[::1]"}, "[::1]"),
        ({"spark.driver.host": "192.0.2.77"}, "0.0.0.0"),  # translated on the way, as of a container
        ({"spark.driver.host": "driver.example"}, "0.0.0.0"),  # a name may have another address for executors
        ({"spark.driver.host": "192.0.2.77", "spark.driver.bindAddress": "127.0.0.3"}, "127.0.0.3"),
        ({"spark.driver.bindAddress": "0.0.0.0"}, "0.0.0.0"),
    ],
)
@pytest.mark.parametrize("master", [MASTER, "yarn"])
def test_the_driver_listens_where_executors_connect(own: dict[str, str], listens: str, master: str) -> None:
    found = settings(replace(CONFIG, master=master, spark=own))
    assert found["spark.driver.bindAddress"] == listens
    assert found["spark.driver.host"] == own.get("spark.driver.host", "127.0.0.1")


def test_a_local_pipeline_ships_nothing() -> None:
    found = settings(CONFIG)
    assert found["spark.jars"] == "sink.jar"
    assert "spark.executorEnv.PYTHONPATH" not in found


def test_a_cluster_that_sizes_itself_begins_with_an_executor() -> None:
    """Spark begins with none, and a start waits for one before it runs a task."""
    least = "spark.dynamicAllocation.minExecutors"
    assert settings(replace(CONFIG, master=MASTER))[least] == "1"
    assert settings(replace(CONFIG, master=MASTER, spark={least: "3"}))[least] == "3"
    assert least not in settings(CONFIG)


TOKENS = {
    "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
    "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="me" clientSecret="hidden";',
}  # fmt: skip
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://idp.example/token"


def test_token_endpoints_reach_the_executors_java() -> None:
    found = settings(replace(CONFIG, master=MASTER, kafka=TOKENS))["spark.executor.extraJavaOptions"]
    assert found == ALLOWED


@pytest.mark.parametrize("name", ["spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"])
@pytest.mark.parametrize("master", [MASTER, "local[2]", "local-cluster[2,1,1024]"])
def test_token_endpoints_are_allowed_beside_a_jobs_own_java_options(name: str, master: str) -> None:
    own = {name: "-XX:+UseG1GC"}
    assert settings(replace(CONFIG, master=master, kafka=TOKENS, spark=own))[name] == f"{ALLOWED} -XX:+UseG1GC"
    assert settings(replace(CONFIG, master=master, spark=own))[name] == "-XX:+UseG1GC"


def test_tasks_get_the_variables_that_their_sink_declares() -> None:
    here = {"ONCEBENCH_POSTGRES": "dsn", "PGPASSWORD": "secret", "HOME": "/home/me"}
    assert for_executors(environment_of(SINKS["postgres"], here)) == {
        "spark.executorEnv.ONCEBENCH_POSTGRES": "dsn",
        "spark.executorEnv.PGPASSWORD": "secret",
    }
    assert environment_of(SINKS["kafka"], here) == {}


def test_spark_hides_every_variable_of_executors() -> None:
    found = settings(replace(CONFIG, master=MASTER))["spark.redaction.regex"]
    hidden = re.compile(found)
    assert all(hidden.search(name) for name in for_executors(dict.fromkeys(SINKS["postgres"].environment, "")))
    assert hidden.search("spark.my.Password"), "Spark's own names stay hidden"
    assert not hidden.search("spark.executor.memory")


def test_a_python_without_this_project_imports_the_archive(tmp_path: Path) -> None:
    """Workers of a cluster start where the archive is, and import the modules of a task."""
    make_archive(tmp_path)
    code = (
        f"import sys; sys.path[:] = [{NAME!r}] + [path for path in sys.path if path not in ('', {str(Path.cwd())!r})]\n"
        "sys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in repr(each).lower()]\n"
        "import pipeline.query, oncebench.sinks.kafka.rows.writers, oncebench.delivery.batch\n"
        "print(pipeline.query.__file__, oncebench.delivery.batch.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(part.startswith(NAME) or f"/{NAME}/" in part for part in done.stdout.split()), done.stdout
