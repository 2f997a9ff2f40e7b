"""Whole runs that replay a user's file.

The file's records are in the sink as the guarantee promises, byte for byte.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncebench.lab.lab import Lab
from oncebench.measure import measure
from oncebench.record import FINAL
from oncebench.record.streams import read_stream
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir
from pipeline.config import RECORDS

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

NAMES = ("anna", "Zoë", "李雷")
HOSTILE = 'naïve 日本 \\"\\u00e9\\" \\ud83d \x7f'  # as it is in the file
LONG = "x" * 9_000  # longer than the SQL auditor reads by itself


def order(number: int) -> str:
    """A line of the file; every fourth is without a key."""
    if number % 4:
        return f'{{"order": {number}, "customer": "{NAMES[number % 3]}", "note": "{HOSTILE}"}}'
    return f'{{"order":{number},"note":"{LONG if number == 8 else number}"}}'


ORDERS = [order(number) for number in range(700)]


def run(lab: Lab, folder: Path, sink: str, guarantee: str, variant: str, *faults: str) -> Report:
    file = folder / "orders.jsonl"
    file.write_text("\r\n\n".join(ORDERS), encoding="utf-8")
    cell = Cell(
        sink, guarantee, variant, faults, workload=RECORDS, records=str(file), records_key="customer", passes=2,
        rate=200.0, sessions=14, warmup_s=0.0,
    )  # fmt: skip
    with open_work_dir(folder / "run") as work:
        report = measure(cell, lab, work.path)
    assert report["auditors"]["agree"]
    assert report["rows"]["expected"] == 3_000 + 2 * len(ORDERS), "with the warm-up"
    return report


@pytest.mark.parametrize("sink", ["kafka", "files-jsonl"])
def test_each_record_is_in_the_sink_once_after_a_kill(lab: Lab, tmp_path: Path, sink: str) -> None:
    report = run(lab, tmp_path, sink, "exactly-once", "two-phase", "after-prepare:kill")
    assert (report["verdict"], report["reasons"]) == ("kept", [])
    values = read_stream(tmp_path / "run" / "final.arrow", FINAL).table["value"].to_pylist()
    rows = [json.loads(value) for value in values]
    found = sorted((row["session_key"], row["record"]) for row in rows if row["session_key"][0] != "w")
    lines = [(f"{2 * n + 1}", text) for n, text in enumerate(ORDERS)]
    assert found == sorted([*lines, *((f"{line}@2", text) for line, text in lines)])


def test_a_broken_sink_is_found_with_a_users_file(lab: Lab, tmp_path: Path) -> None:
    report = run(lab, tmp_path, "broken-files", "exactly-once", "final-names", "after-prepare:kill")
    assert (report["verdict"], report["broken_by"]) == ("broken", ["DUP"])
