"""A whole run over TLS and a login keeps its guarantee though it is killed.

It leaves its secret nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.kafka_access.runs import LOAD, command, report_of
from tests.integration.kafka_access.secured import LOGIN, MUTUAL, PASSWORD, TOKENS, USER, Secured
from tests.integration.kafka_access.test_connection import mutual

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
TO_ENDPOINT = "the secret of the tokens' client is not encrypted on its way to the token endpoint (http)"


class Way(NamedTuple):
    """How a run reaches Kafka, and what its report then has."""

    listener: str
    settings: Callable[[Secured], dict[str, str]]
    security: dict[str, object]


WAYS = {
    "login": Way(
        LOGIN,
        lambda secured: secured.settings(),
        {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-256", "client_certificate": False, "weaknesses": []},
    ),
    "certificate": Way(
        MUTUAL,
        lambda secured: mutual(secured, PASSWORD),
        {"protocol": "SSL", "client_certificate": True, "weaknesses": []},
    ),
    "token": Way(
        TOKENS,
        lambda secured: secured.token(),
        {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "client_certificate": False, "weaknesses": [TO_ENDPOINT]},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_run_with_a_kill_is_kept_and_leaves_no_secret(secured: Secured, tmp_path: Path, way: str) -> None:
    listener, settings, security = WAYS[way]
    conf = secured.file(settings(secured))
    assert PASSWORD in conf.read_text()  # or nothing could leak
    ended = command(
        tmp_path, "run", "--sink", "kafka", "--guarantee", "exactly-once", "--variant", "two-phase", *LOAD,
        "--fault", "after-prepare:kill", "--bootstrap-servers", secured.servers(listener), "--kafka-conf", str(conf),
        "--work-dir", "work", "--json", "report.json",
    )  # fmt: skip
    report = report_of(tmp_path, ended)
    assert report["verdict"] == "kept"
    assert report["environment"]["kafka"]["security"] == security
    assert f"--kafka-conf {conf}" in report["reproduce"]
    conf.unlink()  # a stored run is judged again without its Kafka and its settings
    assert command(tmp_path, "audit", "work").done.returncode == 0


@pytest.mark.slow
def test_a_switched_off_check_of_the_host_name_is_printed(secured: Secured, tmp_path: Path) -> None:
    conf = secured.file(secured.settings())
    ended = command(
        tmp_path, "run", "--sink", "files-jsonl", "--guarantee", "at-least-once", *LOAD,
        "--kafka-set", "ssl.endpoint.identification.algorithm=",
        "--bootstrap-servers", secured.servers(), "--kafka-conf", str(conf), "--work-dir", "work",
    )  # fmt: skip
    assert ended.done.returncode == 0, ended.text
    assert "INSECURE    the host names of Kafka's brokers are not checked" in ended.done.stdout
    assert "INSECURE: the host names of Kafka's brokers are not checked" in ended.done.stderr


def test_a_load_takes_its_password_from_the_environment(secured: Secured, tmp_path: Path) -> None:
    conf = secured.file(secured.settings("PLAIN", "${env:BENCH_PASSWORD}"))
    assert PASSWORD not in conf.read_text()
    words = ("--bootstrap-servers", secured.servers(), "--kafka-conf", str(conf), "--work-dir", "work", "--json")
    ended = command(
        tmp_path, "load", "--rate", "1000", "--duration", "2", *words, environment={"BENCH_PASSWORD": PASSWORD}
    )
    assert ended.done.returncode == 0, ended.text
    assert json.loads(ended.done.stdout)["acknowledged"] >= 1900
    assert ended.leaks == set()


def test_a_refused_run_ends_in_time_and_names_the_cause(secured: Secured, tmp_path: Path) -> None:
    conf = secured.file(secured.settings(password=f"{PASSWORD}-wrong"))
    words = ("--bootstrap-servers", secured.servers(), "--kafka-conf", str(conf), "--work-dir", "work")
    ended = command(tmp_path, "run", "--sink", "kafka", "--guarantee", "exactly-once", *LOAD, *words)
    assert ended.done.returncode == 1
    assert f"the broker refuses the login of user '{USER}' with SCRAM-SHA-256" in ended.done.stderr
    assert "Traceback" not in ended.text
    assert ended.leaks == set()
