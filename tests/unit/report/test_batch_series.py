"""Stored series of batches: what no table could use is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncebench.errors import ExitCode, UserError
from oncebench.report.tables.batch_series import read_series
from tests.unit.report.test_batches import batch_series

Change = Callable[[dict[str, Any], list[dict[str, Any]]], Any]


def written(folder: Path, change: Change | None = None) -> Path:
    """The file of a sound series, or of one with a change."""
    series = batch_series("batches-1", [1.1] * 6)
    about, lines = json.loads(json.dumps([series.about, series.lines]))
    if change:
        change(about, lines)
    path = folder / "batches-1.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (about, *lines)))
    return path


def test_a_series_whose_last_line_was_cut_keeps_the_others(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = read_series(path).lines
    path.write_bytes(path.read_bytes()[:-20])
    assert read_series(path).lines == whole[:-1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda about, _: about.pop("environment"), "has no environment"),
        (lambda about, _: about.update(environment=[]), "has environment = []"),
        (lambda about, _: about.pop("command"), "has no command"),
        (lambda about, _: about.update(series="<b>"), "has series = '<b>'"),
        (lambda about, _: about.update(series="../x"), "has series = '../x'"),
        (lambda about, _: about.update(events=0), "has events = 0"),
        (lambda about, _: about.pop("events"), "either rows or events"),
        (lambda about, _: about.update(rows=5), "either rows or events"),
        (lambda _, lines: lines[0].update(ms="fast"), "has ms = 'fast'"),
        (lambda _, lines: lines[0].update(ms=float("nan")), "has ms = nan"),
        (lambda _, lines: lines[0].update(ms=0), "has ms = 0"),
        (lambda _, lines: lines[0].update(cpu_ms=float("inf")), "has cpu_ms = inf"),
        (lambda _, lines: lines[0].pop("cpu_ms"), "has no cpu_ms"),
        (lambda _, lines: lines[0].pop("round"), "has no round"),
        (lambda _, lines: lines[0].update(arm="kafka"), "has arm = 'kafka'"),
        (lambda _, lines: lines[0].update(arm="kafka.perhaps-once.a"), "has arm = 'kafka.perhaps-once.a'"),
        (lambda _, lines: lines[0].update(events=4), "has a batch of 4 events in a series of 50,000"),
        (lambda _, lines: lines.append(lines[0]), "has round 0 of kafka.at-least-once.acknowledged twice"),
    ],
)
def test_a_damaged_series_is_refused_with_its_place(tmp_path: Path, change: Change, says: str) -> None:
    path = written(tmp_path, change)
    with pytest.raises(UserError) as refused:
        read_series(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)
    assert refused.value.exit_code == ExitCode.USAGE
