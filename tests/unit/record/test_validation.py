"""What a stored object must look like: what does not fit is refused with file, field and what was expected."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from oncebench.audit.python.latency import Distribution
from oncebench.errors import UserError
from oncebench.record import schema as parts
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
    "throughput": {"events_per_s": None}, "latency_ms": Distribution().to_json(), "batches": {"trigger_ms": 1.0},
    "checkpoint": {"share_of_batch": None}, "sink_ms": {"commit": None}, "cpu_s_per_million_events": None,
    "recovery": dict.fromkeys(("detect", "restart", "first_visible", "caught_up", "longest_gap")),
    "faults": [], "seed": 1, "reproduce": "oncebench run",
}  # fmt: skip


@pytest.mark.parametrize(
    ("item", "form"),
    [
        (CELL, parts.Asked), (BATCH, parts.Progress), (ENDS, parts.Ends), (HIT, parts.Hit), (FACTS, parts.Facts),
        ({**BATCH, "recovered": True, "input_rows": 0, "duration_ms": {}, "state": []}, parts.Progress),
        ({"kind": "new", "t_us": 1, "more": []}, parts.Progress),
        ({"event": "random-kill", "t_us": 1, "landed": None}, parts.Timeline),
        ({"t_us": 1, "sent": 4}, parts.Load), ({"done": True, "summary": {"acknowledged": 3}}, parts.Load),
        ({**FACTS, "uses": USES}, parts.Facts),
    ],
)  # fmt: skip
def test_what_a_run_writes_fits(item: Any, form: Any) -> None:
    require(item, form, PATH)


@pytest.mark.parametrize(
    ("item", "form", "says"),
    [
        ([], parts.Facts, "holds []: Input should be a valid dictionary"),
        ({}, parts.Facts, "has no run"),
        ({**FACTS, "uses": {"broker": {"cpu_s": 1, "peak_rss_bytes": 1}}}, parts.Facts, "no uses.broker.written_bytes"),
        ({"schema": 1}, parts.Cell, "has no run"),
        ({**CELL, "sink": "../x"}, parts.Asked, "says sink = '../x': String should match pattern"),
        ({**CELL, "sink": ["kafka"]}, parts.Asked, "says sink = ['kafka']: Input should be a valid string"),
        ({**CELL, "guarantee": "twice"}, parts.Asked, "says guarantee = 'twice': Input should be 'at-most-once'"),
        ({**CELL, "colour": 1}, parts.Asked, "has an unknown field colour"),
        ({**CELL, "faults": ["nowhere:kill"]}, parts.Asked, "says faults[0] = 'nowhere:kill': unknown failpoint"),
        ({**CELL, "faults": "after-commit"}, parts.Asked, "says faults = 'after-commit': Input should be a valid list"),
        ({**CELL, "sessions": True}, parts.Asked, "says sessions = True: Input should be a valid integer"),
        ({"final_complete": True}, parts.Ends, "has no output"),
        ({**ENDS, "output": {"0": {"lso": "1", "hw": 1}}}, parts.Ends, "says output.0.lso = '1'"),
        ({**ENDS, "output": {"zero": {"lso": 1, "hw": 1}}}, parts.Ends, "has output.zero: String should match"),
        ({**ENDS, "leftovers": 3}, parts.Ends, "says leftovers = 3: Input should be a valid list"),
        ({**CELL, "rate": "fast"}, parts.Asked, "says rate = 'fast': Input should be a number or \"max\""),
        ({"run": "r", "cell": {**CELL, "colour": 1}}, parts.Cell, "has an unknown field cell.colour"),
        ({"t_us": 1}, parts.Progress, "has no kind"),
        ([], parts.Progress, "holds []: Input should be a valid dictionary"),
        ({**BATCH, "recovered": True}, parts.Progress, "says input_rows = 5: Input should be less than or equal to 0"),
        ({**BATCH, "end_offsets": {"0": -1}}, parts.Progress, "says end_offsets.0 = -1"),
        ({**BATCH, "duration_ms": {}}, parts.Progress, "has no duration_ms.triggerExecution"),
        ({**BATCH, "t_us": 10**30}, parts.Progress, f"Input should be less than {2**63}"),
        ({**HIT, "t_us": None}, parts.Hit, "says t_us = None"),
        ({name: HIT[name] for name in HIT if name != "action"}, parts.Hit, "has no action"),
        ({"t_us": 1}, parts.Timeline, "has no event"),
        ({"event": "random-kill", "t_us": 1}, parts.Timeline, "has no landed"),
        ({"summary": 3}, parts.Load, "says summary = 3: Input should be a valid dictionary"),
    ],
)
def test_what_does_not_fit_is_named_with_what_to_do(item: Any, form: Any, says: str) -> None:
    with pytest.raises(RecordError) as refused:
        require(item, form, PATH)
    assert str(refused.value).startswith("some.json ")
    assert says in str(refused.value)
    assert "take it from a sound copy" in str(refused.value)


@pytest.mark.parametrize(
    ("form", "fitting", "wrong"),
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
def test_nothing_is_converted(form: Any, fitting: list[Any], wrong: list[Any]) -> None:
    for item in fitting:
        require(item, form, PATH)
    for item in wrong:
        with pytest.raises(RecordError):
            require(item, form, PATH)


def test_the_form_of_a_cell_has_every_field_of_a_cell() -> None:
    assert parts.Asked.__annotations__.keys() == {field.name for field in fields(Cell)}


FAULT = {
    "point": "mid-write",
    "batch": 6,
    "hit": True,
    "fault": "mid-write:kill",
    "lost": 0,
    "duplicated": 0,
    "t_us": 5,
}


def test_faults_that_fit_are_read(tmp_path: Path) -> None:
    missed = FAULT | {"hit": False, "t_us": None}
    chance = FAULT | {"fault": "random:kill"}
    (tmp_path / "r.json").write_text(json.dumps(REPORT | {"faults": [FAULT, missed, chance]}))
    assert len(read_reports(tmp_path / "r.json")[0]["faults"]) == 3


def test_a_report_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"a":' * 100_000)
    with pytest.raises(UserError, match="is not a report"):
        read_reports(tmp_path / "r.json")


def test_a_report_that_fits_is_read(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps(REPORT) + "\n" + json.dumps(REPORT | {"verdict": "broken"}))
    assert [report["verdict"] for report in read_reports(tmp_path / "r.jsonl")] == ["kept", "broken"]


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ({"schema": 1, "verdict": "kept"}, "has no run"),
        (REPORT | {"rows": None}, "says rows = None: Input should be a valid dictionary"),
        (REPORT | {"verdict": "fine"}, "says verdict = 'fine': Input should be 'kept', 'broken'"),
        (REPORT | {"cell": REPORT["cell"] | {"sink": "../x"}}, "says cell.sink = '../x': String should match pattern"),
        (REPORT | {"schema": True}, "judge it with a newer one"),
        (REPORT | {"config": []}, "says config = []: Input should be a valid dictionary"),
        (REPORT | {"reproduce": "oncebench 'run"}, "says reproduce = "),
        (REPORT | {"faults": [FAULT | {"fault": "nonsense"}]}, "unknown failpoint"),
        (REPORT | {"faults": [FAULT | {"fault": "mid-write:teleport"}]}, "there is no fault 'teleport'"),
        (REPORT | {"faults": [FAULT | {"t_us": None}]}, "a fault that was hit has a time t_us"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(report: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(report))
    with pytest.raises(RecordError) as refused:
        read_reports(tmp_path / "r.json")
    assert "r.json" in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("sink", "guarantee", "variant", "known"),
    [
        ("files-jsonl", "at-least-once", "native", None),
        ("delta", "exactly-once", "native", None),
        ("delta", "exactly-once", "idempotent", 0),
        ("kafka", "exactly-once", "of-another-time", 0),
    ],
)
def test_rows_that_an_older_report_counts_where_nothing_told_of_any_are_read_as_unknown(
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
