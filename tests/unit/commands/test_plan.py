"""`oncebench plan`: its runs are those of the newest file that suffices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import plan
from oncebench.errors import ExitCode
from oncebench.planning.points import Point
from tests.unit.planning.test_plan import POINTS


def test_an_interrupted_measurement_does_not_hide_a_complete_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "results" / "local" / "runs"
    runs.mkdir(parents=True)
    for day, count in ((1, 2), (2, len(POINTS)), (3, 3)):
        (runs / f"plan-{day}.jsonl").write_text(json.dumps(count))

    def stored(numbers: int, *_: str) -> list[Point]:
        return list(POINTS[:numbers])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "read_reports", lambda file: json.loads(file.read_text()))
    monkeypatch.setattr(plan, "points", stored)
    words = ("--rate", "3000", "--guarantee", "exactly-once", "--p99", "2s")
    done = CliRunner().invoke(cli, ["plan", *words])
    assert done.exit_code == 0, done.output
    assert f"of {len({point.setting for point in POINTS})} runs are within" in done.stdout


@pytest.mark.parametrize("option", ["--rate", "--outage"])
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_what_is_no_number_is_a_usage_error(option: str, number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_points", lambda *_: list(POINTS))
    words = ("--rate", "3000", "--guarantee", "exactly-once", "--p99", "2s", option, number)
    done = CliRunner().invoke(cli, ["plan", *words])
    assert done.exit_code == ExitCode.USAGE, done.output
    assert option in done.stderr
