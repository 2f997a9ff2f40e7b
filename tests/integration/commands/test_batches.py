"""`oncebench batches --events` on a real broker: every guarantee gets its batches, and the series is stored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.report.tables.batch_series import series_in

pytestmark = [pytest.mark.integration, pytest.mark.spark]

EVENTS, ROUNDS = 2000, 2


def test_each_guarantee_gets_a_batch_of_each_round_through_the_whole_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--sink", "kafka", "--events", str(EVENTS), "--rounds", str(ROUNDS)]
    done = CliRunner().invoke(cli, ["batches", *words])
    assert done.exit_code == 0, done.output
    (series,) = series_in(tmp_path / "results" / "local")
    batches = Counter(line["arm"] for line in series.lines)
    assert batches == dict.fromkeys(batches, ROUNDS)
    assert {arm.partition(".")[2] for arm in batches} >= {
        "at-most-once.claim", "at-least-once.acknowledged", "exactly-once.idempotent", "exactly-once.two-phase",
    }  # fmt: skip
    assert all(0 < line["sink_ms"] < line["ms"] and line["cpu_ms"] > 0 for line in series.lines)
    assert "| exactly-once  | two-phase " in done.stdout
