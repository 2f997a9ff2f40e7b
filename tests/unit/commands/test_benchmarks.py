"""The benchmarks `speed` and `micro`, and what asv calls a regression."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from oncebench import micro
from pipeline.plain_events import plain_events
from tests import ROOT


@pytest.mark.parametrize(
    ("kind", "report", "counts"),
    [
        ("steady", {"generator": {"lateness_ms": {"p99": 90.0}}, "deaths": {"unasked": 0}}, True),
        ("steady", {"generator": {"lateness_ms": {"p99": 900.0}}, "deaths": {"unasked": 0}}, False),
        ("flat_out", {"generator": {"lateness_ms": {"p99": 900.0}}, "deaths": {"unasked": 0}}, True),
        ("flat_out", {"generator": {"lateness_ms": {"p99": None}}, "deaths": {"unasked": 1}}, False),
        ("steady", {}, True),  # the oldest reports have neither field
        ("flat_out", {"verdict": "unknown", "reasons": ["the clock was set"]}, False),
        ("steady", {"verdict": "vacuous"}, False),
    ],
)
def test_a_disturbed_run_has_no_speed(kind: str, report: dict[str, Any], counts: bool) -> None:
    speed = pytest.importorskip("benchmarks.speed")
    assert (speed.why_not_measured(kind, {"verdict": "kept"} | report) is None) == counts


@pytest.mark.parametrize(
    ("code", "verdict", "counted"),
    [(1, "unknown", 2), (0, "kept", 3), (3, "broken", None), (5, "", None), (1, "", None)],
)
def test_a_run_without_a_verdict_costs_no_other_run(
    code: int, verdict: str, counted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of six runs ends so; an empty verdict: it writes no report."""
    speed = pytest.importorskip("benchmarks.speed")
    made: list[Path] = []

    def instead(words: list[str], **_: Any) -> Any:
        if "--help" in words:
            return SimpleNamespace(stdout="--guarantee", returncode=0)
        report = {
            "verdict": "kept", "throughput": {"events_per_s": 50_000.0}, "cpu_s_per_million_events": 12.5,
            "latency_ms": {"p50": 400.0, "p99": 800.0}, "batches": {"trigger_ms": 300.0},
        }  # fmt: skip
        path = Path(words[words.index("--json") + 1])
        assert not path.exists()  # a run without a report must not get that of the run before
        made.append(path)
        third = len(made) == 3
        if verdict or not third:
            path.write_text(json.dumps(report | ({"verdict": verdict, "reasons": ["why"]} if third else {})))
        return SimpleNamespace(returncode=code if third else 0, stderr="the end of its log")

    monkeypatch.setattr(speed, "ROUNDS", 3)
    monkeypatch.setattr(speed.subprocess, "run", instead)
    if counted is None:
        with pytest.raises(RuntimeError, match=f"ended with exit code {code}:\nthe end of its log"):
            speed.setup_cache()
        return
    found = speed.setup_cache()
    assert {metric: len(values) for metric, values in found.items()} == {
        metric: counted if metric.startswith("flat_out") else 3 for metric in speed.METRICS
    }


def test_every_kind_of_benchmark_has_a_threshold() -> None:
    util = pytest.importorskip("asv.util")
    thresholds = util.load_json(ROOT / "asv.conf.json", js_comments=True)["regressions_thresholds"]
    names = ["micro.Load.time_encode", "speed.Speed.track_steady_p50_ms", "cells.Promise.track_lost('kafka a b')",
             "cells.Cost.track_p99_ms('kafka a b')", "cells.Recovery.track_recovery_s('kafka a b')"]  # fmt: skip
    assert [sum(bool(re.search(pattern, name)) for pattern in thresholds) for name in names] == [1] * len(names)


def test_micro_benchmarks_run_and_skip_what_a_commit_lacks() -> None:
    micro = pytest.importorskip("benchmarks.micro")
    skip = pytest.importorskip("asv_runner.benchmarks.mark").SkipNotImplemented
    for name in dir(micro):
        if isinstance(of := getattr(micro, name), type) and not name.startswith("_"):
            made = of()
            made.setup()
            for timed in (each for each in dir(made) if each.startswith("time_")):
                getattr(made, timed)()
    older = micro.Ledger()
    older.needs = "something that this commit has not"
    with pytest.raises(skip):
        older.setup()


def test_speed_reads_each_figure_from_a_report() -> None:
    speed = pytest.importorskip("benchmarks.speed")
    report = {
        "throughput": {"events_per_s": 50_000.0},
        "cpu_s_per_million_events": 12.5,
        "latency_ms": {"p50": 400.0, "p99": 800.0},
        "batches": {"trigger_ms": 300.0},
    }
    read = {metric: speed.figure(report, metric) for metric in speed.METRICS}
    assert list(read.values()) == [20.0, 12.5, 400.0, 800.0, 300.0]
    figures = {metric: [value] for metric, value in read.items()}
    assert speed.Speed().track_steady_p99_ms(figures) == {"samples": [800.0], "number": 1}


def test_packing_is_timed_with_usual_events_only(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read.append(int(plain_events(batch)[1].sum()))
            yield batch

    monkeypatch.setattr(micro, "pack", packed)
    micro.Work().pack()
    assert sum(read) == micro.EVENTS
