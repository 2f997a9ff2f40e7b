"""A run with several generators and observers is judged as the same run with one of each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from loadgen.workloads import LATE_BY_US
from oncebench.audit.sql.files import read_files
from oncebench.measure import judge_again
from oncebench.record import OBSERVED, Record
from oncebench.record.digests import altered, write_digests
from oncebench.record.streams import read_stream, write_stream
from oncebench.record.validation import RecordError
from oncebench.report.measures.generators import generator_section
from oncebench.report.summary import summary
from tests.unit.audit.test_earlier_run import STORED

NEW = ("generator", "config", "reproduce", "environment")
SUMMARY = {"sent_share": 1.0, "events_per_s": 50.0, "acknowledged": 200}


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED, tmp_path / "one"))


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """The same run, as two generators and two observers record it."""
    return split(Path(shutil.copytree(STORED, tmp_path / "two")))


def split(folder: Path, owner: Callable[[Any], Any] = lambda session: session % 2) -> Path:
    cell = json.loads((folder / "cell.json").read_bytes())
    cell["cell"] |= {"generators": 2, "observers": 2}
    (folder / "cell.json").write_text(json.dumps(cell))
    whole, plan = folder / "ledger", json.loads((folder / "ledger" / "plan.json").read_bytes())
    session = np.load(whole / "session.npy")
    for number in (1, 2):
        own = owner(session) == number - 1
        part = folder / f"ledger-{number}"
        part.mkdir()
        for path in whole.glob("*.npy"):
            np.save(part / path.name, np.load(path)[own])
        (part / "plan.json").write_text(json.dumps({**plan, "events": int(own.sum())}))
        late = {"p50": 1.0, "p99": 50.0 * number, "max": 90.0 + number}
        (folder / f"load-{number}.jsonl").write_text(json.dumps({"summary": {**SUMMARY, "lateness_ms": late}}) + "\n")
        rows = read_stream(folder / "observed.arrow", OBSERVED).table
        mine = rows.filter(pc.equal(rows["partition"], number - 1))
        write_stream(folder / f"observed-{number}.arrow", OBSERVED, [mine.to_pydict()])
        shutil.copy(folder / "observer.jsonl", folder / f"observer-{number}.jsonl")
    shutil.rmtree(whole)
    for name in ("load.jsonl", "observed.arrow", "observer.jsonl"):
        (folder / name).unlink()
    return folder


def plain(report: Any) -> dict[str, Any]:
    return dict(json.loads(json.dumps(report)))


def test_every_figure_is_that_of_the_run_with_one_of_each(one: Path, two: Path) -> None:
    alone, several = plain(judge_again(one)), plain(judge_again(two))
    assert several["verdict"] == "kept"
    assert several["auditors"]["agree"]
    assert {name: value for name, value in several.items() if name not in NEW} == {
        name: value for name, value in alone.items() if name not in NEW
    }
    assert several["latency_ms"]["n"] == 40, "a latency for each row after the warm-up"


def test_a_late_event_of_windows_is_due_with_the_event_before_it_in_its_ledger(two: Path) -> None:
    punctual = generator_section(Record.load(two))["lateness_ms"]
    for number in (1, 2):
        path = two / f"ledger-{number}" / "scheduled_us.npy"
        due_us = np.load(path)
        due_us[5::20] -= LATE_BY_US
        np.save(path, due_us)
    late = generator_section(Record.load(two))["lateness_ms"]
    assert late["max"] < punctual["max"] + 1_000, "not an hour"
    assert late["p50"] == pytest.approx(punctual["p50"], abs=20)


def test_lateness_over_all_generators_counts_each_event_once(one: Path, two: Path) -> None:
    alone, several = (plain(judge_again(folder))["generator"] for folder in (one, two))
    assert several["lateness_ms"] == alone["lateness_ms"]
    assert several["sent_share"] == alone["sent_share"] == 1.0
    assert several["events_per_s"] == pytest.approx(alone["events_per_s"], rel=0.001)
    assert [each["lateness_ms"]["max"] for each in several["processes"]] == [91.0, 92.0]
    assert several["slowest"] == 2
    assert set(alone) == {"lateness_ms", "sent_share", "failed", "unknown", "events_per_s", "queue_full_s"}


def test_failed_and_unanswered_events_count_in_the_section_of_their_generator(one: Path, two: Path) -> None:
    for folder in (one / "ledger", two / "ledger-2"):
        acked_us = np.load(folder / "acked_us.npy")
        acked_us[:20], acked_us[20:25] = -7, 0
        np.save(folder / "acked_us.npy", acked_us)
    alone, several = (generator_section(Record.load(folder)) for folder in (one, two))
    answered = {"sent_share": 0.95, "failed": 20, "unknown": 5}  # of 400 events
    assert answered.items() <= alone.items() and answered.items() <= several.items()
    assert [(each["sent_share"], each["failed"], each["unknown"]) for each in several["processes"]] == [
        (1.0, 0, 0),
        (0.9, 20, 5),
    ]


def test_the_summary_names_the_slowest_generator(one: Path, two: Path) -> None:
    assert "  generators  2, number 2 the slowest: at most 92 ms late" in summary(judge_again(two)).splitlines()
    assert "  observers   2, which share the partitions of the output" in summary(judge_again(two)).splitlines()
    assert "generators" not in summary(judge_again(one))


def test_a_run_without_an_observers_file_is_unknown_and_names_it(two: Path) -> None:
    (two / "observed-2.arrow").unlink()
    report = judge_again(two)
    assert report["verdict"] == "unknown"
    assert "the observer did not watch to the end: observed-2.arrow is missing" in report["reasons"]


def test_a_row_that_two_observers_saw_is_found(two: Path) -> None:
    rows = read_stream(two / "observed-1.arrow", OBSERVED).table.to_pydict()
    (two / "observed-2.arrow").unlink()
    changed = {**rows, "value": [b"x" for _ in rows["value"]]}
    write_stream(two / "observed-2.arrow", OBSERVED, [changed])
    report = judge_again(two)
    assert (report["verdict"], "INCO" in report["anomalies"]) == ("broken", True)
    assert report["auditors"]["agree"]  # type: ignore[typeddict-item]


def test_digests_cover_the_files_of_every_process(two: Path) -> None:
    write_digests(two)
    assert altered(two) == ()
    np.save(two / "ledger-2" / "acked_us.npy", np.zeros(200, np.int64))
    (two / "observed-1.arrow").unlink()
    assert [each.partition(" ")[0] for each in altered(two)] == ["ledger-2/acked_us.npy", "observed-1.arrow"]


def test_a_session_in_two_ledgers_is_refused(tmp_path: Path) -> None:
    folder = split(Path(shutil.copytree(STORED, tmp_path / "run")))
    shutil.rmtree(folder / "ledger-2")
    shutil.copytree(folder / "ledger-1", folder / "ledger-2")
    with pytest.raises(RecordError, match=r"ledger-2 and .*ledger-1 both hold session 0"):
        Record.load(folder)


@pytest.mark.parametrize("change", [{"seed": 2}, {"started_us": 7}, {"sessions": 5}, {"rate": 5.0}])
def test_ledgers_of_different_loads_are_refused(two: Path, change: Mapping[str, Any]) -> None:
    path = two / "ledger-2" / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))
    with pytest.raises(RecordError, match="have plans of different loads"):
        Record.load(two)


def test_a_missing_ledger_of_several_is_named(two: Path) -> None:
    shutil.rmtree(two / "ledger-2")
    with pytest.raises(RecordError, match=r"ledger-2/plan\.json is missing"):
        Record.load(two)


def test_both_readers_find_the_same_ledger(two: Path) -> None:
    first, second = Record.load(two), read_files(two)
    for name, column in asdict(first.ledger).items():
        assert (second.ledger[name].to_numpy() == column).all()
    assert (first.plan.events, second.ledger.num_rows) == (400, 400)
