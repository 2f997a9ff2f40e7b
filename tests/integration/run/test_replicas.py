"""Faults of brokers in a cluster of three, in whole audited runs.

Exactly-once is kept, and rows flow on. Only an unclean leader election breaks every guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.contract import AT_LEAST_ONCE, EXACTLY_ONCE
from oncebench.lab.lab import Lab, open_lab
from oncebench.measure import measure
from oncebench.record.json_lines import read_lines
from oncebench.report.outcome import outcome_of
from oncebench.report.replication import replication_of
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.workdir import open_work_dir

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("three"), sinks={"kafka"}, brokers=3) as lab:
        yield lab


# A failover takes 9 s and a start of a broker 3 s on an idle machine, and several times as long on a busy one.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("variant", "faults", "noted"),
    [
        ("two-phase", ("after-prepare:kill-output-leader",), ("leader-killed", "leader-moved", "broker-back")),
        (
            "idempotent",
            ("after-prepare:bounce-transaction-coordinator", "mid-write:stop-group-coordinator:25@after=4"),
            ("leader-ends", "leader-moved", "broker-back", "leader-stopped", "leader-continued"),
        ),
        ("two-phase", ("mid-commit:rolling-restart",), ("broker-ends", "broker-back")),
        ("two-phase", ("before-prepare:refuse-writes:120",), ("too-few-replicas", "broker-back")),
        (
            "idempotent",
            ("before-prepare:kill-group-coordinator", "after-prepare:kill-transaction-coordinator@after=2"),
            ("leader-killed", "leader-moved", "broker-back"),
        ),
    ],
    ids=[
        "output leader killed",
        "coordinators bounced and stopped",
        "rolling restart",
        "writes refused",
        "coordinators killed",
    ],
)
def test_exactly_once_survives_the_loss_of_one_broker(
    three: Lab, tmp_path: Path, variant: str, faults: tuple[str, ...], noted: tuple[str, ...]
) -> None:
    report, timeline = kept(three, tmp_path / "run", variant, faults)
    events = [line["event"] for line in timeline]
    assert set(noted) <= set(events)
    assert events.count("broker-back") == 3 if "broker-ends" in noted else events.count("broker-back") >= 1
    found = replication_of(report)
    assert found is not None
    assert (found.replicas, found.in_sync) == (3, 2)
    assert 0 < report["resources"]["broker"]["peak_rss_bytes"] < 3_000_000_000
    assert three.own_kafka is not None
    assert three.own_kafka.alive


@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_exactly_once_survives_a_broker_that_is_cut_off(tmp_path: Path, variant: str) -> None:
    with open_lab(tmp_path / "lab", sinks={"kafka"}, brokers=3, separable=True) as lab:
        _, timeline = kept(lab, tmp_path / "run", variant, ("after-prepare:isolate-output-leader:30",))
    isolated, connected = (
        next(line for line in timeline if line["event"] == event) for event in ("leader-isolated", "leader-reconnected")
    )
    assert connected["moved_to"] != isolated["broker"], "two brokers believed that they lead"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("guarantee", "variant"),
    [(EXACTLY_ONCE, "two-phase"), (EXACTLY_ONCE, "idempotent"), (AT_LEAST_ONCE, "acknowledged")],
)
def test_no_guarantee_survives_an_unclean_election(three: Lab, tmp_path: Path, guarantee: str, variant: str) -> None:
    report, timeline = audited(three, tmp_path / "run", guarantee, variant, ("after-commit:unclean-election@after=3",))
    (elected,) = (line for line in timeline if line["event"] == "leader-unclean")
    assert elected["lost_offsets"] > 0
    assert report["verdict"] == "broken"
    assert report["anomalies"]["LOSS"] == report["rows"]["lost"] > 0
    assert outcome_of(report) == "limit", report["reasons"]
    assert three.own_kafka is not None
    assert three.own_kafka.alive


def kept(lab: Lab, folder: Path, variant: str, faults: tuple[str, ...]) -> tuple[Report, list[Any]]:
    """The report of a run that hit these faults and kept exactly-once, and its timeline."""
    report, timeline = audited(lab, folder, EXACTLY_ONCE, variant, faults)
    assert (report["verdict"], report["rows"]["lost"], report["rows"]["duplicated"]) == ("kept", 0, 0), report[
        "reasons"
    ]
    assert [fault["hit"] for fault in report["faults"]] == [True] * len(faults)
    assert report["faults"][0]["recovery"]["longest_gap"] > 0
    return report, timeline


def audited(lab: Lab, folder: Path, guarantee: str, variant: str, faults: tuple[str, ...]) -> tuple[Report, list[Any]]:
    """The report of a run with these faults, and its timeline."""
    cell = Cell("kafka", guarantee, variant, faults=faults, rate=300.0, sessions=60, max_events_per_batch=300,
                warmup_s=0.0, brokers=3)  # fmt: skip
    require_possible([cell])
    with open_work_dir(folder) as work:
        report = measure(cell, lab, work.path)
    return report, list(read_lines(folder / "timeline.jsonl").items)
