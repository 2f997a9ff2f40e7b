"""Every guarantee and variant of the Kafka sink is kept over TLS and a login, with one kill each."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.delivery.contract import Support
from oncebench.sinks.registry import SINKS
from tests.integration.kafka_access.runs import LOAD, command, report_of
from tests.integration.kafka_access.secured import PASSWORD, Secured

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("support", SINKS["kafka"].supports, ids=lambda each: f"{each.guarantee} {each.variant}")
def test_a_guarantee_is_kept_over_tls_and_a_login(secured: Secured, tmp_path: Path, support: Support) -> None:
    conf = secured.file(secured.settings("SCRAM-SHA-512"))
    assert PASSWORD in conf.read_text()  # or nothing could leak
    ended = command(
        tmp_path, "run", "--sink", "kafka", "--guarantee", support.guarantee, "--variant", support.variant, *LOAD,
        "--fault", f"{support.triggering_faults[0]}:kill", "--bootstrap-servers", secured.servers(),
        "--kafka-conf", str(conf), "--work-dir", "work", "--keep", "--json", "report.json",
    )  # fmt: skip
    report = report_of(tmp_path, ended)
    assert report["verdict"] == "kept"
    assert [fault["hit"] for fault in report["faults"]] == [True]
    assert report["environment"]["kafka"]["security"]["mechanism"] == "SCRAM-SHA-512"
