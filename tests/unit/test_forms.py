"""What a stored object must look like: what does not fit is refused with file, field and what was expected."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from oncebench.judge.latency import Distribution
from oncebench.record import parts
from oncebench.record.forms import COUNT, TEXT, Fields, Form, Items, Maybe, RecordError, Values, require
from oncebench.reports.report import read_reports
from oncebench.scenario import Cell

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
    "cell": {"sink": "kafka", "delivery": "exactly-once", "variant": "two-phase", "faults": [], "random_kills": 0},
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
        (CELL, parts.ASKED), (BATCH, parts.PROGRESS), (ENDS, parts.ENDS), (HIT, parts.HIT), (FACTS, parts.FACTS),
        ({**BATCH, "recovered": True, "input_rows": 0, "duration_ms": {}, "state": []}, parts.PROGRESS),
        ({"kind": "new", "t_us": 1, "more": []}, parts.PROGRESS),
        ({"event": "random-kill", "t_us": 1, "landed": None}, parts.TIMELINE),
        ({"t_us": 1, "sent": 4}, parts.LOAD), ({"done": True, "summary": {"acknowledged": 3}}, parts.LOAD),
        ({**FACTS, "uses": USES}, parts.FACTS),
    ],
)  # fmt: skip
def test_what_a_run_writes_fits(item: Any, form: Form) -> None:
    require(item, form, PATH)


@pytest.mark.parametrize(
    ("item", "form", "says"),
    [
        ([], parts.FACTS, "holds [], not an object"),
        ({}, parts.FACTS, "has no run"),
        ({**FACTS, "uses": {"broker": {"cpu_s": 1, "peak_rss_bytes": 1}}}, parts.FACTS, "no uses.broker.written_bytes"),
        ({"schema": 1}, parts.CELL, "has no run"),
        ({**CELL, "sink": "paper"}, parts.ASKED, "says sink = 'paper', one of"),
        ({**CELL, "sink": ["kafka"]}, parts.ASKED, "says sink = ['kafka'], one of"),
        ({**CELL, "delivery": "twice"}, parts.ASKED, "says delivery = 'twice', one of at-most-once"),
        ({**CELL, "colour": 1}, parts.ASKED, "has an unknown field colour"),
        ({**CELL, "faults": ["nowhere:kill"]}, parts.ASKED, "says faults[0] = 'nowhere:kill'"),
        ({**CELL, "faults": "after-commit"}, parts.ASKED, "says faults = 'after-commit', a list"),
        ({**CELL, "sessions": True}, parts.ASKED, "says sessions = True"),
        ({"final_complete": True}, parts.ENDS, "has no output"),
        ({**ENDS, "output": {"0": {"lso": "1", "hw": 1}}}, parts.ENDS, "says output.0.lso = '1'"),
        ({**ENDS, "output": {"zero": {"lso": 1, "hw": 1}}}, parts.ENDS, "has output.zero, where the number"),
        ({**ENDS, "leftovers": 3}, parts.ENDS, "says leftovers = 3, a list"),
        ({"t_us": 1}, parts.PROGRESS, "has no kind"),
        ({**BATCH, "end_offsets": {"0": -1}}, parts.PROGRESS, "says end_offsets.0 = -1"),
        ({**BATCH, "duration_ms": {}}, parts.PROGRESS, "has no duration_ms.triggerExecution"),
        ({**BATCH, "t_us": 10**30}, parts.PROGRESS, "64 bits"),
        ({**HIT, "t_us": None}, parts.HIT, "says t_us = None"),
        ({name: HIT[name] for name in HIT if name != "action"}, parts.HIT, "has no action"),
        ({"t_us": 1}, parts.TIMELINE, "has no event"),
        ({"event": "random-kill", "t_us": 1}, parts.TIMELINE, "has no landed"),
        ({"summary": 3}, parts.LOAD, "says summary = 3, an object"),
    ],
)
def test_what_does_not_fit_is_named_with_what_to_do(item: Any, form: Form, says: str) -> None:
    with pytest.raises(RecordError) as refused:
        require(item, form, PATH)
    assert str(refused.value).startswith("some.json ")
    assert says in str(refused.value)
    assert "take it from a sound copy" in str(refused.value)


def test_forms_are_made_of_forms() -> None:
    form = Fields({"a": Items(Maybe(COUNT))}, {"b": Values(TEXT)}, closed=True)
    require({"a": [1, None], "b": {"x": "y"}}, form, PATH)
    for wrong in ({"a": [-1]}, {"a": [1.0]}, {"a": None}, {"a": [], "b": {"x": 1}}, {"a": [], "c": 0}, [], None):
        with pytest.raises(RecordError):
            require(wrong, form, PATH)


def test_the_form_of_a_cell_has_every_field_of_a_cell() -> None:
    assert {*parts.ASKED.must, *parts.ASKED.may} == {field.name for field in fields(Cell)}


def test_a_report_that_fits_is_read(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps(REPORT) + "\n" + json.dumps(REPORT | {"verdict": "broken"}))
    assert [report["verdict"] for report in read_reports(tmp_path / "r.jsonl")] == ["kept", "broken"]


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ({"schema": 1, "verdict": "kept"}, "has no run"),
        (REPORT | {"rows": None}, "says rows = None, an object was expected"),
        (REPORT | {"verdict": "fine"}, "says verdict = 'fine', one of kept, broken"),
        (REPORT | {"cell": REPORT["cell"] | {"sink": "paper"}}, "says cell.sink = 'paper', one of"),
        (REPORT | {"schema": True}, "judge it with a newer one"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(report: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(report))
    with pytest.raises(RecordError) as refused:
        read_reports(tmp_path / "r.json")
    assert "r.json" in str(refused.value)
    assert says in str(refused.value)
