"""Stored objects: a misfit is refused with its file, its field and the expected value."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from oncebench.audit.python.latency import Distribution
from oncebench.errors import UserError
from oncebench.record import schema
from oncebench.record.validation import OBJECT, Count, RecordError, Whole, require
from oncebench.report.report import read_reports
from oncebench.scenario.cell import Cell

PATH = Path("some.json")
CELL = Cell("kafka", "exactly-once", "two-phase", ("after-commit:kill",)).as_json()
BATCH = {
    "kind": "batch", "t_us": 1, "batch": 0, "start_offsets": {}, "end_offsets": {"0": 5}, "input_rows": 5,
    "duration_ms": {"triggerExecution": 9}, "state": [{"commitTimeMs": 1}],
}  # fmt: skip
ENDS = {"output": {"0": {"lso": 1, "hw": 1}}, "input": {}, "leftovers": [], "final_complete": True}
HIT = {"fault": "after-commit:kill", "point": "after-commit", "batch": 6, "action": "kill", "t_us": 1, "rows": None}
FACTS = {"run": "r", "topics": {}, "kafka": {}, "java": "17", "interrupted": False, "uses": {}}
USES = {"broker": {"cpu_s": 1.5, "peak_rss_bytes": 2, "written_bytes": 3}}
REPORT: dict[str, Any] = {
    "schema": 1, "run": "ob-1", "verdict": "kept", "reasons": [], "anomalies": {},
    "cell": {"sink": "kafka", "guarantee": "exactly-once", "variant": "two-phase", "faults": [], "random_kills": 0},
    "sessions": {"acknowledged": 1, "finished": 1},
    "rows": {"expected": 20, "visible": 20, "lost": 0, "duplicated": 0},
    "throughput": {"events_per_s": None}, "latency_ms": Distribution().as_json(), "batches": {"trigger_ms": 1.0},
    "checkpoint": {"share_of_batch": None}, "sink_ms": {"commit": None}, "cpu_s_per_million_events": None,
    "recovery": dict.fromkeys(("detect", "restart", "first_visible", "caught_up", "longest_gap")),
    "faults": [], "seed": 1, "reproduce": "oncebench run",
}  # fmt: skip


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (CELL, schema.StoredCell), (BATCH, schema.Progress), (ENDS, schema.Ends), (HIT, schema.Hit),
        (FACTS, schema.Facts),
        ({**BATCH, "recovered": True, "input_rows": 0, "duration_ms": {}, "state": []}, schema.Progress),
        ({"kind": "new", "t_us": 1, "more": []}, schema.Progress),
        ({"event": "random-kill", "t_us": 1, "landed": None}, schema.Timeline),
        ({"t_us": 1, "sent": 4}, schema.Load), ({"done": True, "summary": {"acknowledged": 3}}, schema.Load),
        ({**FACTS, "uses": USES}, schema.Facts),
    ],
)  # fmt: skip
def test_files_of_a_run_fit_their_schemas(item: Any, kind: Any) -> None:
    require(item, kind, PATH)


@pytest.mark.parametrize(
    ("item", "kind", "message"),
    [
        ([], schema.Facts, "holds []: Input should be a valid dictionary"),
        ({}, schema.Facts, "has no run"),
        (
            {**FACTS, "uses": {"broker": {"cpu_s": 1, "peak_rss_bytes": 1}}},
            schema.Facts,
            "no uses.broker.written_bytes",
        ),
        ({"schema": 1}, schema.CellFile, "has no run"),
        ({**CELL, "sink": "../x"}, schema.StoredCell, "has sink = '../x': String should match pattern"),
        ({**CELL, "sink": ["kafka"]}, schema.StoredCell, "has sink = ['kafka']: Input should be a valid string"),
        ({**CELL, "guarantee": "twice"}, schema.StoredCell, "has guarantee = 'twice': Input should be 'at-most-once'"),
        ({**CELL, "colour": 1}, schema.StoredCell, "has an unknown field colour"),
        ({**CELL, "faults": ["nowhere:kill"]}, schema.StoredCell, "has faults[0] = 'nowhere:kill': unknown failpoint"),
        (
            {**CELL, "faults": "after-commit"},
            schema.StoredCell,
            "has faults = 'after-commit': Input should be a valid list",
        ),
        ({**CELL, "sessions": True}, schema.StoredCell, "has sessions = True: Input should be a valid integer"),
        ({**CELL, "warmup_s": float("nan")}, schema.StoredCell, "has warmup_s = nan: Input should be a finite number"),
        ({**FACTS, "theirs": "x"}, schema.Facts, "has theirs = 'x': Input should be a valid dictionary"),
        ({**FACTS, "theirs": {"KAFKA": 1}}, schema.Facts, "has theirs.KAFKA = 1: Input should be a valid string"),
        ({"final_complete": True}, schema.Ends, "has no output"),
        ({**ENDS, "output": {"0": {"lso": "1", "hw": 1}}}, schema.Ends, "has output.0.lso = '1'"),
        ({**ENDS, "output": {"zero": {"lso": 1, "hw": 1}}}, schema.Ends, "has output.zero: String should match"),
        ({**ENDS, "leftovers": 3}, schema.Ends, "has leftovers = 3: Input should be a valid list"),
        ({**CELL, "rate": "fast"}, schema.StoredCell, "has rate = 'fast': Input should be a number or \"max\""),
        ({"run": "r", "cell": {**CELL, "colour": 1}}, schema.CellFile, "has an unknown field cell.colour"),
        ({"t_us": 1}, schema.Progress, "has no kind"),
        ([], schema.Progress, "holds []: Input should be a valid dictionary"),
        ({**BATCH, "recovered": True}, schema.Progress, "has input_rows = 5: Input should be less than or equal to 0"),
        ({**BATCH, "end_offsets": {"0": -1}}, schema.Progress, "has end_offsets.0 = -1"),
        ({**BATCH, "duration_ms": {}}, schema.Progress, "has no duration_ms.triggerExecution"),
        ({**BATCH, "t_us": 10**30}, schema.Progress, f"Input should be less than {2**63}"),
        ({**HIT, "t_us": None}, schema.Hit, "has t_us = None"),
        ({name: HIT[name] for name in HIT if name != "action"}, schema.Hit, "has no action"),
        ({"t_us": 1}, schema.Timeline, "has no event"),
        ({"event": "random-kill", "t_us": 1}, schema.Timeline, "has no landed"),
        ({"summary": 3}, schema.Load, "has summary = 3: Input should be a valid dictionary"),
    ],
)
def test_a_misfit_is_named_with_what_to_do(item: Any, kind: Any, message: str) -> None:
    with pytest.raises(RecordError) as refused:
        require(item, kind, PATH)
    assert str(refused.value).startswith("some.json ")
    assert message in str(refused.value)
    assert "take it from a sound copy" in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "fitting", "wrong"),
    [
        (Count, [0, 2**63 - 1], [-1, 2**63, 1.0, "1", True, None]),
        (Whole, [-(2**63), 2**63 - 1], [-(2**63) - 1, 2**63, 1.0, "1", False, None]),
        (int, [-1, 10**30], [1.0, "1", True, None]),
        (float, [1, 1.5, -(10**30)], ["1", True, None]),
        (bool, [True], [1, "true", None]),
        (str, [""], [1, b"x", None]),
        (list[str], [[]], [(), {}, "x", None]),
        (OBJECT, [{}], [[], "x", None]),
    ],
)
def test_nothing_is_converted(kind: Any, fitting: list[Any], wrong: list[Any]) -> None:
    for item in fitting:
        require(item, kind, PATH)
    for item in wrong:
        with pytest.raises(RecordError):
            require(item, kind, PATH)


def test_the_stored_cell_has_every_field_of_a_cell() -> None:
    assert schema.StoredCell.__annotations__.keys() == {field.name for field in fields(Cell)}


FAULT = {
    "point": "mid-write",
    "batch": 6,
    "hit": True,
    "fault": "mid-write:kill",
    "lost": 0,
    "duplicated": 0,
    "t_us": 5,
}


DEATHS: dict[str, Any] = {"asked": 1, "unasked": 0, "each_unasked": []}
CHECKPOINT: dict[str, Any] = {"share_of_batch": None, "per_million_events": None, "per_batch": None}
STEADINESS: dict[str, Any] = {"lag_slope": None, "latency_rise": None}


def test_faults_that_fit_are_read(tmp_path: Path) -> None:
    missed = FAULT | {"hit": False, "t_us": None}
    chance = FAULT | {"fault": "random:kill"}
    (tmp_path / "r.json").write_text(json.dumps(REPORT | {"faults": [FAULT, missed, chance]}))
    assert len(read_reports(tmp_path / "r.json")[0]["faults"]) == 3


def test_a_report_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"a":' * 100_000)
    with pytest.raises(UserError, match="is not a report"):
        read_reports(tmp_path / "r.json")


def test_a_report_that_fits_is_read(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps(REPORT) + "\n" + json.dumps(REPORT | {"verdict": "broken"}))
    assert [report["verdict"] for report in read_reports(tmp_path / "r.jsonl")] == ["kept", "broken"]


@pytest.mark.parametrize("older", [{}, {"told": "exit code 1, 2.5 s after its start"}])
def test_the_deaths_of_older_reports_are_read(older: dict[str, str], tmp_path: Path) -> None:
    death = {"exit_code": 1, "signal": None, "why": "", "after_start_s": 2.5, **older}
    (tmp_path / "r.json").write_text(json.dumps(REPORT | {"deaths": DEATHS | {"unasked": 1, "each_unasked": [death]}}))
    assert read_reports(tmp_path / "r.json")[0]["deaths"]["each_unasked"] == [death]


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"schema": 1, "verdict": "kept"}, "has no run"),
        (REPORT | {"rows": None}, "has rows = None: Input should be a valid dictionary"),
        (REPORT | {"verdict": "fine"}, "has verdict = 'fine': Input should be 'kept', 'broken'"),
        (REPORT | {"cell": REPORT["cell"] | {"sink": "../x"}}, "has cell.sink = '../x': String should match pattern"),
        (REPORT | {"schema": True}, "judge it with a newer one"),
        (REPORT | {"config": []}, "has config = []: Input should be a valid dictionary"),
        (REPORT | {"config": {"faults": None}}, "has config.faults = None: Input should be a valid list"),
        (REPORT | {"config": {"trigger_ms": None}}, "has config.trigger_ms = None: Input should be a valid integer"),
        (REPORT | {"config": {"rate": []}}, 'has config.rate = []: Input should be a number or "max"'),
        (REPORT | {"deaths": DEATHS | {"unasked": None}}, "has deaths.unasked = None: Input should be a valid integer"),
        (REPORT | {"deaths": DEATHS | {"each_unasked": "x"}}, "has deaths.each_unasked = 'x'"),
        (REPORT | {"deaths": DEATHS | {"each_unasked": [{}]}}, "has no deaths.each_unasked[0].exit_code"),
        (REPORT | {"generator": {"lateness_ms": "x"}}, "has generator.lateness_ms = 'x'"),
        (REPORT | {"generator": {"lateness_ms": {"p99": "x"}}}, "has generator.lateness_ms.p99 = 'x'"),
        (REPORT | {"checkpoint": CHECKPOINT | {"per_million_events": "x"}}, "has checkpoint.per_million_events = 'x'"),
        (REPORT | {"checkpoint": CHECKPOINT | {"per_batch": {"bytes": [], "files": 1}}}, "per_batch.bytes = []"),
        (REPORT | {"steadiness": STEADINESS | {"lag_slope_error": "x"}}, "has steadiness.lag_slope_error = 'x'"),
        (REPORT | {"price": {"written_bytes": "x"}}, "has price.written_bytes = 'x'"),
        (REPORT | {"visibility_gap_ms": {"p50": "x"}}, "has visibility_gap_ms.p50 = 'x'"),
        (REPORT | {"resources": {"broker": {}}}, "has no resources.broker.peak_rss_bytes"),
        (REPORT | {"events": {"in_topic": "x"}}, "has events.in_topic = 'x'"),
        (REPORT | {"reproduce": "oncebench 'run"}, "has reproduce = "),
        (REPORT | {"faults": [FAULT | {"fault": "nonsense"}]}, "unknown failpoint"),
        (REPORT | {"faults": [FAULT | {"fault": "mid-write:teleport"}]}, "there is no fault 'teleport'"),
        (REPORT | {"faults": [FAULT | {"t_us": None}]}, "a fault that was hit has a time t_us"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(report: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(report))
    with pytest.raises(RecordError) as refused:
        read_reports(tmp_path / "r.json")
    assert "r.json" in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("sink", "guarantee", "variant", "known"),
    [
        ("files-jsonl", "at-least-once", "native", None),
        ("delta", "exactly-once", "native", None),
        ("delta", "exactly-once", "idempotent", 0),
        ("kafka", "exactly-once", "of-another-time", 0),
    ],
)
def test_an_older_report_has_unknown_replayed_rows_if_none_were_recorded(
    sink: str, guarantee: str, variant: str, known: int | None, tmp_path: Path
) -> None:
    marks = REPORT["recovery"] | {"restart": 1.0, "replayed_rows": 0}
    older = REPORT | {"cell": REPORT["cell"] | {"sink": sink, "guarantee": guarantee, "variant": variant},
                      "recovery": marks,
                      "faults": [FAULT | {"recovery": marks}, FAULT, FAULT | {"recovery": None}]}  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(older))
    (read,) = read_reports(tmp_path / "r.json")
    assert (read["recovery"]["replayed_rows"], read["faults"][0]["recovery"]["replayed_rows"]) == (known, known)
    assert read["recovery"]["restart"] == 1.0
