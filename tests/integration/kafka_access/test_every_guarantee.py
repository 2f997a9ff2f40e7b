"""Every guarantee and variant of the Kafka sink is kept over TLS, with one kill each.

Once the client logs in with SCRAM, and once it has a certificate (mutual TLS).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from oncebench.delivery.contract import Support
from oncebench.sinks.registry import SINKS
from tests.integration.kafka_access.runs import LOAD, command, report_of
from tests.integration.kafka_access.secured import LOGIN, MUTUAL, PASSWORD, Secured
from tests.integration.kafka_access.test_connection import mutual

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

# What the report has of each listener's access.
REPORTED: Mapping[str, Mapping[str, object]] = {
    LOGIN: {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "client_certificate": False},
    MUTUAL: {"protocol": "SSL", "client_certificate": True},
}


@pytest.mark.parametrize("listener", REPORTED)
@pytest.mark.parametrize("support", SINKS["kafka"].supports, ids=lambda each: f"{each.guarantee} {each.variant}")
def test_a_guarantee_is_kept_over_tls(secured: Secured, tmp_path: Path, support: Support, listener: str) -> None:
    conf = secured.file(secured.settings("SCRAM-SHA-512") if listener == LOGIN else mutual(secured, PASSWORD))
    assert PASSWORD in conf.read_text()  # or nothing could leak
    ended = command(
        tmp_path, "run", "--sink", "kafka", "--guarantee", support.guarantee, "--variant", support.variant, *LOAD,
        "--fault", f"{support.triggering_faults[0]}:kill", "--bootstrap-servers", secured.servers(listener),
        "--kafka-conf", str(conf), "--work-dir", "work", "--keep", "--json", "report.json",
    )  # fmt: skip
    report = report_of(tmp_path, ended)
    assert report["verdict"] == "kept"
    assert [fault["hit"] for fault in report["faults"]] == [True]
    security = report["environment"]["kafka"]["security"]
    assert {name: security.get(name) for name in REPORTED[listener]} == REPORTED[listener]
