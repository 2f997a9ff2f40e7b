"""Several generators and observers in one run.

Nothing is lost, nothing counts twice, and a process that dies is named.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from loadgen.ledger import Ledger
from loadgen.session import encode
from oncebench.lab.lab import Lab
from oncebench.measure import LATENCIES, measure
from oncebench.processes.child import Child
from oncebench.record import OBSERVED
from oncebench.record.json_lines import Tail, read_lines
from oncebench.record.numbered import numbered
from oncebench.record.streams import read_stream
from oncebench.run.cell import _Run
from oncebench.run.configs import load_configs, observer_configs
from oncebench.run.processes import GENERATOR, OBSERVER, RunProcesses
from oncebench.run.topics import Topics
from oncebench.scenario.cell import Cell
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.workdir import open_work_dir
from tests.unit.run.fake_run import FakeRun
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

CELL = Cell("kafka", "exactly-once", "two-phase", rate=2_000.0, sessions=21, partitions=4)


def topics(kafka: KafkaBroker) -> Topics:
    output = kafka.fresh_topic("several-out", partitions=4)
    target = {"output": output, "sink_id": output, "kafka": kafka.access.as_json()}
    return Topics(kafka.fresh_topic("several-in", partitions=4), "unused", target)


def sent(kafka: KafkaBroker, folder: Path, generators: int) -> list[Ledger]:
    """The ledgers of a load that so many generators sent to a topic of their own."""
    folder.mkdir()
    cell = replace(CELL, generators=generators)
    with RunProcesses(folder, dict(os.environ)) as run:
        run.start_generators(load_configs(cell, kafka.access, topics(kafka), folder))
        wait_for("the end of the load", lambda: run.load_over)
        assert run.died() == [], [child.log.read_text() for child in run.of(GENERATOR)]
    return [Ledger.open(folder / name) for name in numbered("ledger", generators)]


def events(ledgers: list[Ledger]) -> list[tuple[str, str]]:
    """Keys and values of the acknowledged events, with times from the start of the load."""
    found: list[tuple[str, str]] = []
    for ledger in ledgers:
        assert (ledger.acked_us > 0).all()
        due_us = ledger.scheduled_us - ledger.plan.started_us
        found += zip(*encode(ledger.plan.seed, ledger.session, ledger.seq, due_us), strict=True)
    return sorted(found)


def test_two_generator_processes_send_the_events_of_one(kafka: KafkaBroker, tmp_path: Path) -> None:
    two = sent(kafka, tmp_path / "two", 2)
    assert events(two) == events(sent(kafka, tmp_path / "one", 1))
    places = [set(zip(each.partition.tolist(), each.offset.tolist(), strict=True)) for each in two]
    assert len(places[0] | places[1]) == len(events(two)) == 2_100, "each event has a place of its own in the topic"
    assert len({each.plan.started_us for each in two}) == 1


def test_two_observers_see_each_row_once(kafka: KafkaBroker, tmp_path: Path) -> None:
    there = topics(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for at in range(80):
        producer.produce(there.target["output"], b'{"ended_at": 1}', key=str(at), partition=at % 4)
    assert producer.flush(60) == 0
    configs = observer_configs(replace(CELL, observers=2), there, tmp_path)
    with RunProcesses(tmp_path, dict(os.environ)) as run:
        run.start_observers(configs)
        statuses = [Tail(Path(config["status_path"])) for config in configs]
        wait_for("80 rows in both statuses", lambda: sum(each.last().get("visible", 0) for each in statuses) >= 80)
        assert run.died() == []
        run.stop(OBSERVER)
    streams = [read_stream(Path(config["observed_path"]), OBSERVED) for config in configs]
    assert all(each.complete for each in streams)
    assert [sorted(set(each.table["partition"].to_pylist())) for each in streams] == [[0, 2], [1, 3]]
    keys = [key for each in streams for key in each.table["key"].to_pylist()]
    assert sorted(keys) == sorted(str(at).encode() for at in range(80))


class Load(FakeRun):
    """A run without a pipeline whose generators are real."""

    _start_load = _Run._start_load

    def __init__(self, folder: Path, cell: Cell, kafka: KafkaBroker) -> None:
        lab = SimpleNamespace(own_kafka=None, kafka=SimpleNamespace(access=kafka.access))
        processes = RunProcesses(folder, dict(os.environ))
        super().__init__(folder, cell, lab=lab, topics=topics(kafka), processes=processes)
        self.fields: list[tuple[str, dict[str, Any]]] = []
        self.supervisor.note = lambda event, **fields: self.fields.append((event, fields))

    def _look(self, phase: Any) -> None:
        generators = self.processes.of(GENERATOR)
        if len(generators) == 2 and self._load_began() and generators[1].alive:
            os.kill(generators[1].pid, signal.SIGKILL)
        super()._look(phase)


def test_a_killed_generator_ends_the_load_and_is_named(kafka: KafkaBroker, tmp_path: Path) -> None:
    minutes = replace(CELL, sessions=6_000, generators=2, warmup_s=500.0)
    run = Load(tmp_path, minutes, kafka)
    with run.processes:
        run._load()
        assert not any(child.alive for child in run.processes.children.values()), "the other one was stopped"
    died = [fields for event, fields in run.fields if event == "process-died"]
    assert died == [{"name": "generator 2 of 2", "why": "killed by signal 9"}]
    assert [event for event, _ in run.fields] == ["load-started", "process-died", "load-done"]
    first = read_lines(tmp_path / "load-1.jsonl").items[-1]["summary"]
    assert first["sent"] < first["planned"]
    assert first["unknown"] == 0, "the other one waited for Kafka's answers"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_run_with_several_processes_is_kept_with_a_latency_per_row(lab: Lab, tmp_path: Path) -> None:
    cell = replace(CELL, faults=("after-decision:kill",), rate=300.0, sessions=60, partitions=2, warmup_s=0.0,
                   generators=2, observers=2)  # fmt: skip
    with open_work_dir(tmp_path / "run") as folder:
        report = measure(cell, lab, folder.path)
        latencies = np.load(folder.path / LATENCIES)
    assert report["verdict"] == "kept", report["reasons"]
    assert report["rows"]["lost"] == report["rows"]["duplicated"] == 0
    assert report["rows"]["expected"] == report["rows"]["visible"] == len(latencies)
    assert report["latency_ms"]["n"] == 60 * 20
    assert (latencies[:, 2] >= latencies[:, 0]).all(), "no row was seen before its session ended"
    assert len(report["generator"]["processes"]) == 2
    assert report["generator"]["slowest"] in (1, 2)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [GENERATOR, OBSERVER])
def test_a_run_that_lost_a_process_is_unknown_and_names_it(lab: Lab, tmp_path: Path, kind: str) -> None:
    cell = replace(CELL, rate=200.0, sessions=240, warmup_s=0.0, generators=2, observers=2)  # two minutes of load
    folder, killed = tmp_path / "run", list[int]()

    def kill(_pipeline: Child) -> None:
        if not killed and all((folder / name / "plan.json").exists() for name in numbered("ledger", 2)):
            killed.extend(pids(f"{folder}/{kind}-2.json"))
            os.kill(killed[0], signal.SIGKILL)

    with open_work_dir(folder):
        report = measure(cell, lab, folder, during=kill)
        timeline = read_lines(folder / "timeline.jsonl").items
    assert report["verdict"] == "unknown"
    assert f"{kind} 2 of 2 died during the run: killed by signal 9" in report["reasons"]
    times = {line["event"]: line["t_us"] for line in timeline}
    assert times["load-done"] - times["load-started"] < 100e6, "the load of two minutes ended early"


def pids(argument: str) -> list[int]:
    """The processes with this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words:
            found.append(int(path.parent.name))
    return found
