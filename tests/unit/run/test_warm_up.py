"""What a run uses counts from the end of its warm-up on, once, and from the load's start if there is no such end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.run.cell import _Run


def run(folder: Path, started_s_ago: float | None, phase: str = "loading", rate: float | str = 500.0) -> Any:
    """A run whose load began so long ago (None: it has not), with a warm-up of 6 s."""
    if started_s_ago is not None:
        (folder / "ledger").mkdir()
        plan = {"started_us": time.time_ns() // 1000 - round(started_s_ago * 1e6)}
        (folder / "ledger" / "plan.json").write_text(json.dumps(plan))
    made: Any = _Run.__new__(_Run)
    made.cell = SimpleNamespace(warmup_s=6.0, rate=rate)
    made.folder, made.phase, made.warm, made.measured_from_us = folder, phase, rate == "max", 0
    made.marks = []
    made.meters = SimpleNamespace(mark=lambda: made.marks.append(phase))
    return made


@pytest.mark.parametrize(
    ("started_s_ago", "phase", "marks"),
    [(6.1, "loading", 1), (5.0, "loading", 0), (None, "loading", 0), (6.1, "draining", 0)],
)
def test_use_counts_anew_once_the_warm_up_is_over_while_the_load_lasts(
    tmp_path: Path, started_s_ago: float | None, phase: str, marks: int
) -> None:
    made = run(tmp_path, started_s_ago, phase)
    made._end_warm_up()
    made._end_warm_up()
    assert len(made.marks) == marks
    assert (made.measured_from_us > 0) == bool(marks)


def test_a_load_without_a_rate_has_no_warm_up(tmp_path: Path) -> None:
    made = run(tmp_path, 6.1, rate="max")
    made._end_warm_up()
    assert made.marks == []
