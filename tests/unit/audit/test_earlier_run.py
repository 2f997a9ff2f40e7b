"""A run that an earlier version recorded keeps its verdict and its figures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from oncebench.measure import judge_again
from oncebench.record import FINAL, INPUT, QUARANTINE
from oncebench.record.streams import read_stream, write_stream
from oncebench.record.validation import require
from oncebench.report.measures.metrics import why_no_speed
from oncebench.report.schema import Report
from oncebench.report.summary import summary

# Recorded by version 0.1 of 2026-11-25, commit 28dd13a: four sessions into Kafka, killed once. Its files call the
# guarantee "delivery". The folder is complete but for configurations, logs and the ledgers of the priming sessions.
STORED = Path(__file__).with_name("earlier_run")
UNCHANGED = (
    "rows", "sessions", "events", "latency_ms", "visibility_gap_ms", "throughput", "sink_ms", "recovery", "deaths",
    "uncharged",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED, tmp_path / "run"))


def test_the_stored_files_use_the_earlier_name_of_the_guarantee() -> None:
    cell = json.loads((STORED / "cell.json").read_bytes())["cell"]
    assert (cell["delivery"], "guarantee" in cell) == ("exactly-once", False)


def test_an_earlier_run_keeps_its_verdict_and_every_count(folder: Path) -> None:
    then = json.loads((STORED / "report.json").read_bytes())
    report = json.loads(json.dumps(judge_again(folder)))
    assert (report["verdict"], report["reasons"], report["anomalies"]) == ("kept", [], {})
    assert then["auditors"] == {"agree": True, "compared": 69, "differ": {}, "trouble": ""}
    assert report["auditors"] == {**then["auditors"], "compared": 71}  # two more codes
    assert report["cell"]["guarantee"] == "exactly-once"
    then["recovery"]["longest_gap"] = 10872.6  # a gap after a fault now counts before the load's first row, too
    for name in UNCHANGED:
        assert {field: report[name][field] for field in then[name]} == then[name], name  # newer reports may have more


@pytest.mark.parametrize("moved_us", [5_000, 200_000])
def test_a_run_whose_clock_was_moved_has_counts_and_no_times(folder: Path, moved_us: int) -> None:
    known = json.loads((folder / "facts.json").read_bytes())
    then = judge_again(folder)
    (folder / "facts.json").write_text(json.dumps({**known, "clock_moved_us": moved_us}))
    report = judge_again(folder)
    assert (report["anomalies"], report["rows"]) == (then["anomalies"], then["rows"])
    assert report["clock_moved_us"] == moved_us
    if moved_us == 5_000:
        assert (report["verdict"], report["latency_ms"]) == ("kept", then["latency_ms"])
        return
    assert report["verdict"] == "unknown"
    assert report["reasons"][0].startswith("the clock of the run's machine was set forward by 0.200 s during the run")
    require(json.loads(json.dumps(report)), Report, folder)
    assert list(why_no_speed(report)) == ["its verdict is unknown", "the clock of its machine was moved"]
    assert "speed       left out" in summary(report)
    figures = [report[name] for name in ("latency_ms", "visibility_gap_ms", "append_latency_ms", "throughput")]
    figures += [report["recovery"], report["steadiness"]]
    assert {value for each in figures for value in each.values()} == {None, 0}  # n and negative are numbers
    assert [fault["recovery"] for fault in report["faults"]] == [None]
    assert (report["latency_curve_ms"], report["timeline"]) == (None, {})
    assert (report["price"], report["cpu_s_per_million_events"], report["bottleneck"]) == (None, None, None)


def test_an_earlier_run_without_one_of_its_rows_is_broken(folder: Path) -> None:
    rows = read_stream(folder / "final.arrow", FINAL).table.slice(1)
    (folder / "final.arrow").unlink()
    write_stream(folder / "final.arrow", FINAL, [rows.to_pydict()])
    report = judge_again(folder)
    wrong = dict.fromkeys(("LOSS", "TORN", "INCO", "LOSTC", "EXPO"), 1)
    assert (report["verdict"], report["anomalies"]) == ("broken", wrong)


def test_damage_to_a_file_that_no_auditor_reads_leaves_the_verdict(folder: Path) -> None:
    (folder / "observer.jsonl").write_bytes(bytes(100))
    assert judge_again(folder)["verdict"] == "kept"


@pytest.mark.parametrize(("copy", "anomalies"), [(b"{", {}), (b"}", {"QUAR": 1})])
def test_the_copies_of_an_earlier_run_are_judged(folder: Path, copy: bytes, anomalies: dict[str, int]) -> None:
    """Earlier versions cut no copies.

    Therefore their files have no columns for the lengths of originals.
    """
    events = read_stream(folder / "input.arrow", INPUT).table.to_pylist()
    offset = 1 + max(each["offset"] for each in events if each["partition"] == 0)
    bad = {"partition": 0, "offset": offset, "timestamp_ms": 0, "key": b"k", "value": b"{"}
    place = {"reason": "not-json", "source_partition": 0, "source_offset": offset}
    earlier = pa.schema([field for field in QUARANTINE if not field.name.endswith("_bytes")])
    for name, schema, rows in (
        ("input", INPUT, [*events, bad]),
        ("quarantine", earlier, [{**bad, "offset": 0, "value": copy, **place}]),
    ):
        (folder / f"{name}.arrow").unlink()
        write_stream(folder / f"{name}.arrow", schema, [pa.Table.from_pylist(rows, schema).to_pydict()])
    report = judge_again(folder)
    assert report["auditors"]["agree"]
    assert report["anomalies"] == anomalies
