"""A report describes its run: machine, command, anomalies, throughput."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.python.audit import audit
from oncebench.audit.verdict import NOT_FINISHED
from oncebench.observe.resources import Use
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from oncebench.report import origin, report
from oncebench.report.comparisons.paired import settings
from oncebench.report.environment import environment
from oncebench.report.measures.throughput import throughput
from oncebench.scenario.cell import Cell
from tests import ROOT, sample_reports
from tests.unit.audit.audit_world import lay_out, make_record, make_world, observed_table

KAFKA = {"bootstrap_servers": "b1:9092,b2:9092"}
GUIDES = [ROOT / "docs" / name for name in ("reading_the_tables.md", "anomalies.md", "recovery.md")]
# Sections whose fields are those of a cell, or of a machine and its software.
DESCRIPTIONS = ("cell", "config", "environment")


@pytest.mark.parametrize(
    ("facts", "before", "after"),
    [
        ({}, "", ""),
        ({"kafka": {**KAFKA, "own": True}}, "", ""),
        ({"kafka": {**KAFKA, "own": False}}, "", " --bootstrap-servers b1:9092,b2:9092"),
        (
            {"kafka": {**KAFKA, "own": False, "kafka_conf": "/my conf", "kafka": {"client.id": "a b"}}},
            "",
            " --bootstrap-servers b1:9092,b2:9092 --kafka-conf '/my conf' --kafka-set 'client.id=a b'",
        ),
        ({"theirs": {"ONCEBENCH_POSTGRES": "host=db1 dbname=it"}}, "ONCEBENCH_POSTGRES='host=db1 dbname=it' ", ""),
    ],
)
def test_the_reproduce_command_names_the_users_servers(facts: dict, before: str, after: str) -> None:
    cell = Cell("kafka", "exactly-once", "two-phase")
    assert origin._reproduce(cell, facts) == f"{before}{cell.reproduce()}{after}"


def test_a_report_does_not_reveal_its_run_folder(tmp_path: Path) -> None:
    topics = {"input": "ob-1.in", "output": f"{tmp_path.resolve()}/sink/output"}
    assert origin._without_folder(topics, tmp_path) == {"input": "ob-1.in", "output": "sink/output"}
    assert origin._without_folder(None, tmp_path) is None
    died = {"event": "pipeline-failed", "t_us": 2, "exit_code": 1, "why": f"no {tmp_path.resolve()}/checkpoint"}
    record: Any = SimpleNamespace(path=tmp_path, timeline=SimpleNamespace(items=[died]), hits=SimpleNamespace(items=[]))
    assert [death["why"] for death in report._deaths(record)["each_unasked"]] == ["no checkpoint"]


def test_each_code_has_its_rule_kinds_and_examples() -> None:
    world = make_world(3, 1)
    found = report._anomaly_details(audit(make_record(world, [*world.rows[1:], replace(world.rows[5], partition=1)])))
    assert found["rules"] == {code: CATALOGUE[code].rule for code in ("LOSS", "TORN", "DUP", "SCAT")}
    assert found["splits"] == {
        "LOSS": {"whole-sessions": 0, "torn-sessions": 1}, "DUP": {"same-partition": 0, "other-partition": 1},
    }  # fmt: skip
    assert {code: len(examples) for code, examples in found["examples"].items()} == dict.fromkeys(found["rules"], 1)


def test_a_flat_out_load_is_timed_from_the_attempt_that_read_it() -> None:
    running = [{"kind": "running", "t_us": t_us} for t_us in (1_000_000, 20_000_000)]  # the first took open sessions in
    record: Any = SimpleNamespace(progress=SimpleNamespace(items=running), plan=SimpleNamespace(started_us=10_000_000))
    cell = Cell("kafka", "exactly-once", "two-phase", rate="max")
    found = throughput(np.array([30_000_000]), record, cell, measured_from_us=0, events=5)
    assert found == {"events_per_s": 0.5, "sessions_per_s": 0.01}


def test_a_warm_flat_out_load_is_timed_by_what_was_left_to_read() -> None:
    lines = [
        {"kind": "running", "t_us": 20_000_000},
        {"kind": "batch", "began_us": 21_000_000, "duration_ms": {"triggerExecution": 4000}, "end_offsets": {"0": 600}},
        {
            "kind": "batch",
            "began_us": 25_000_000,
            "duration_ms": {"triggerExecution": 1000},
            "end_offsets": {"0": 1000},
        },
    ]
    record: Any = SimpleNamespace(
        progress=SimpleNamespace(items=lines),
        plan=SimpleNamespace(started_us=10_000_000),
        input=SimpleNamespace(table=SimpleNamespace(num_rows=1000)),
        ledger=SimpleNamespace(acked_us=np.ones(1000)),
    )
    cell = Cell("kafka", "exactly-once", "two-phase", rate="max")
    # After 3 of 4 s of the first batch 550 events are left; the last row is seen 2 s later.
    found = throughput(np.array([24_500_000, 26_000_000]), record, cell, measured_from_us=24_000_000, events=10)
    assert found == {"events_per_s": 275.0, "sessions_per_s": 2.75}


def test_a_report_keeps_the_machine_of_its_run(
    tmp_path: Path,
) -> None:
    cell = Cell("kafka", "exactly-once", "two-phase")
    record = replace(make_record(make_world(2)), path=tmp_path, progress=Lines(()), cell={"cell": cell.as_json()})
    there = {"cpu": "of another machine", "commit": "abc"}
    reported = report.make_report(record, cell, {}, {"run": "r", "environment": there})["environment"]
    assert (reported["cpu"], reported["commit"], "cores" in reported) == ("of another machine", "abc", False)
    older = report.make_report(record, cell, {}, {"run": "r"})["environment"]
    assert older["cpu"] == environment()["cpu"]


def test_a_report_describes_the_engine_and_omits_settings_without_effect(tmp_path: Path) -> None:
    cell = Cell("kafka", "exactly-once", "flink-rocksdb-200ms", partitions=3)
    record = replace(make_record(make_world(2)), path=tmp_path, progress=Lines(()), cell={"cell": cell.as_json()})
    engine = {
        "name": "flink",
        "settings": {"heap": "2g"},
        "unused": ["master"],
        "program": ["python", "-m", "peers.flink"],
    }
    made = report.make_report(record, cell, {}, {"run": "r", "engine": engine})
    assert made["environment"]["engine"] == {"name": "flink", "settings": {"heap": "2g"}}
    assert "master" not in made["config"] and made["config"]["partitions"] == 3
    assert made["reproduce"].startswith("python -m peers.flink --sink kafka --guarantee exactly-once")
    ours = report.make_report(record, cell, {}, {"run": "r"})
    assert (ours["environment"]["engine"]["name"], "master" in ours["config"]) == ("spark", True)


def test_figures_about_batches_are_absent_without_batches(tmp_path: Path) -> None:
    cell = Cell("kafka", "exactly-once", "flink-rocksdb-200ms")
    position = Lines(({"kind": "position", "t_us": 5, "read_us": 4, "end_offsets": {"0": 200}},))
    record = replace(make_record(make_world(2)), path=tmp_path, progress=position, cell={"cell": cell.as_json()})
    made = report.make_report(record, cell, {}, {"run": "r"})
    split = made["batches"].pop("split_ms")
    assert {*made["batches"].values(), *split.values(), *made["sink_ms"].values()} == {None}
    assert made["checkpoint"]["share_of_batch"] is made["checkpoint"]["per_batch"] is None


def test_the_guides_name_every_field(tmp_path: Path) -> None:
    cell = Cell("kafka", "exactly-once", "two-phase")
    record = replace(make_record(make_world(3)), path=tmp_path, progress=Lines(()), cell={"cell": cell.as_json()})
    use = Use(cpu_s=1.0, written_bytes=1, read_bytes=1, peak_rss_bytes=1)
    made = report.make_report(record, cell, {"broker": use, "spark_jvm": use}, {"run": "r", "topics": {}})
    sections = {name: part for name, part in made.items() if isinstance(part, dict) and name not in DESCRIPTIONS}
    fields = {name for part in sections.values() for name in part if part is not made["resources"]} | made.keys()
    quoted = re.findall(r"`([^`\n]+)`", "".join(guide.read_text() for guide in GUIDES))
    assert fields - set(re.findall(r"\w+", " ".join(quoted))) - set(CATALOGUE) == set()


def test_an_older_config_is_read_with_the_present_names(tmp_path: Path) -> None:
    pair = [sample_reports.cell_of("kafka", guarantee, variant)
            for guarantee, variant in (("at-least-once", "acknowledged"), ("exactly-once", "two-phase"))]  # fmt: skip
    for each in pair:
        each["config"]["delivery"] = each["config"].pop("guarantee")
    file = tmp_path / "older.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in pair))
    (rounds,) = settings(report.read_reports(file)).values()
    assert [len(runs) for runs in rounds.values()] == [2]


def test_a_report_counts_the_sessions_that_primed_the_pipeline(tmp_path: Path) -> None:
    cell = Cell("kafka", "exactly-once", "two-phase")
    record = replace(make_record(make_world(3)), path=tmp_path, progress=Lines(()), cell={"cell": cell.as_json()})
    made = report.make_report(record, cell, {}, {"run": "r"})
    later = report.make_report(replace(record, plan=replace(record.plan, started_us=10**18)), cell, {}, {"run": "r"})
    assert made["sessions"]["primed"] == 0
    assert later["sessions"]["primed"] == made["sessions"]["finished"] == 3


@pytest.mark.parametrize(("spark", "waited_ms"), [({}, 80.0), ({"master": "local[1]"}, 160.0), ({"workers": 8}, 20.0)])
def test_the_tasks_of_a_cluster_commit_their_state_at_once(
    tmp_path: Path, spark: dict[str, Any], waited_ms: float
) -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", **spark)
    batch = {"kind": "batch", "batch": 0, "t_us": 10**18, "began_us": 10**18, "input_rows": 1, "start_offsets": {},
             "end_offsets": {"0": 1}, "duration_ms": {"triggerExecution": 400, "addBatch": 300},
             "state": [{"commitTimeMs": 160, "numShufflePartitions": 8}]}  # fmt: skip
    record = replace(
        make_record(make_world(2)), path=tmp_path, progress=Lines((batch,) * 8), cell={"cell": cell.as_json()}
    )
    made = report.make_report(record, cell, {}, {"run": "r"})
    assert made["checkpoint"]["state_commit_ms"] == waited_ms


@pytest.mark.parametrize(
    ("kafka", "is_log", "figures"),
    [
        ({"own": True}, True, True),
        ({"own": False, "bootstrap_servers": "b1:9092"}, True, False),
        ({"own": False, "bootstrap_servers": "b1:9092"}, False, True),
    ],
    ids=["the run's Kafka", "the user's Kafka", "files, which this machine stamps"],
)
def test_times_of_another_machines_clock_are_left_out(
    tmp_path: Path, kafka: dict[str, Any], is_log: bool, figures: bool
) -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", warmup_s=0.0)
    world = make_world(3)
    placed = lay_out(world.rows)
    seen = Stream(observed_table(placed, [10**16] * len(placed)), complete=True)
    record = make_record(world, path=tmp_path, progress=Lines(()), cell={"cell": cell.as_json()}, observed=seen)
    record = replace(record, ends={**record.ends, "stamped": True, "output_is_log": is_log})
    made = report.make_report(record, cell, {}, {"run": "r", "kafka": kafka}, tmp_path / "latencies.npy")
    assert made["latency_ms"]["n"]
    assert [bool(made[name]["n"]) for name in ("visibility_gap_ms", "append_latency_ms")] == [figures, figures]
    assert np.load(tmp_path / "latencies.npy")[:, 1].any() == figures


@pytest.mark.parametrize(("event", "why"), [("start-timed-out", NOT_FINISHED), ("stalled", "")])
def test_a_report_has_the_reason_why_its_run_did_not_finish(tmp_path: Path, event: str, why: str) -> None:
    record = replace(make_record(make_world(3)), path=tmp_path, timeline=Lines(({"event": event, "t_us": 1},)))
    assert origin.origin(record, Cell("kafka", "exactly-once", "two-phase"), {})["not_finished"] == why


def test_the_report_of_a_users_own_sink_has_what_each_guarantee_asks_for(tmp_path: Path) -> None:
    world = make_world(3)
    hit = {"fault": "after-commit:kill", "point": "after-commit", "action": "kill", "batch": 6, "t_us": 10**18}
    plain = Cell("kafka", "exactly-once", "two-phase", faults=("after-commit:kill", "after-commit:kill"))
    record = replace(
        make_record(world, [*world.rows, replace(world.rows[5], partition=1)]), path=tmp_path, progress=Lines(()),
        hits=Lines((hit,)),
        cell={"cell": plain.as_json()},
    )  # fmt: skip
    made = report.make_report(record, replace(plain, black_box="{}"), {}, {"run": "r"})
    assert "the fault after-commit:kill was not hit" in made["open_questions"]["not_exercised"]
    assert set(made["excuses"]) == {"at-most-once", "at-least-once", "exactly-once"}
    assert made["excuses"]["at-least-once"] == {"missing": {}, "unknown": {"DUP": 1}}
    moved = report.make_report(record, replace(plain, black_box="{}"), {}, {"run": "r", "clock_moved_us": 10**9})
    assert moved["excuses"]["at-least-once"] == {"missing": {}, "unknown": {}}
    assert "excuses" not in report.make_report(record, plain, {}, {"run": "r"})
