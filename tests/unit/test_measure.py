"""A measured run stores the facts that its audit needs, with its digests as the last step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench import measure
from oncebench.record import FACTS, Record
from oncebench.record.digests import FILE
from oncebench.run.cell import RunResult
from oncebench.scenario.cell import Cell
from tests.unit.audit.test_earlier_run import STORED


@pytest.mark.parametrize(("moved_us", "verdict"), [(0, "kept"), (-20_000_000, "unknown")])
def test_a_run_keeps_the_movement_of_its_clock_and_its_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved_us: int, verdict: str
) -> None:
    folder = Path(shutil.copytree(STORED, tmp_path / "run"))
    topics: Any = SimpleNamespace(as_json=dict)
    result = RunResult("run", topics, {}, {}, {}, None, 0, 0, moved_us, False, {"name": "spark", "settings": {},
                       "unused": [], "program": []})  # fmt: skip
    monkeypatch.setattr(measure, "run_cell", lambda *_: result)
    lab: Any = SimpleNamespace(theirs={}, java=SimpleNamespace(version="21"))
    report = measure.measure(Cell("kafka", "exactly-once", "two-phase", ("after-decision:kill",)), lab, folder)
    assert (report["verdict"], report["clock_moved_us"]) == (verdict, moved_us)
    assert (folder / measure.LATENCIES).exists() == (moved_us == 0)
    facts = json.loads((folder / FACTS).read_bytes())
    assert (facts["clock_moved_us"], facts["digests"]) == (moved_us, True)
    assert Record.load(folder).altered == ()
    (folder / FILE).unlink()
    assert len(Record.load(folder).altered) == 1
