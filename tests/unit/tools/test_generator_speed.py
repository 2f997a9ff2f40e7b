"""`python -m tools.generator_speed` prints rates of whole loads, and names a program that failed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from oncebench.errors import UserError
from tools import generator_speed as tool

KAFKA = cast("Any", SimpleNamespace(bootstrap_servers="127.0.0.1:1"))


@pytest.mark.parametrize("words", [["0"], ["many"], ["7", "4"]])
def test_a_wrong_argument_is_a_mistake_of_the_command_line(words: list[str]) -> None:
    done = CliRunner().invoke(tool.main, words)
    assert done.exit_code == 2
    assert "Invalid value for " in done.stderr


@pytest.mark.parametrize(("acknowledged", "counts"), [(200, True), (199, False)])
def test_a_load_without_some_answers_has_no_rate(
    acknowledged: int, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {"p50": 1.0, "p99": 2.0, "max": 3.0}
    summary = {"planned": 200, "acknowledged": acknowledged, "events_per_s": 5.0, "lateness_ms": late}
    (tmp_path / "t.jsonl").write_text(json.dumps({"done": True, "summary": summary}) + "\n")
    monkeypatch.setattr(tool, "run", lambda *_: "")
    if counts:
        assert tool.generated(KAFKA, "t", tmp_path, "max", 200) == {"events_per_s": 5.0, **late}
    else:
        with pytest.raises(UserError, match="Kafka acknowledged 199 of 200 events"):
            tool.generated(KAFKA, "t", tmp_path, "max", 200)


@pytest.mark.parametrize(
    ("printed", "rate"),
    [
        ("9 records sent, 1.5 records/sec (\n3000000 records sent, 2.5 records/sec (\n", 2.5),
        ("9 records sent, 1.5 records/sec (\n", None),
    ],
)
def test_the_rate_of_a_part_of_the_records_does_not_count(
    printed: str, rate: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "command", lambda *_: ["java", "-cp", "kafka"])
    monkeypatch.setattr(tool, "jars", lambda _: ())
    monkeypatch.setattr(tool, "run", lambda *_: printed)
    if rate is not None:
        assert tool.perf_test(KAFKA, "t", tmp_path, cast("Any", None), 100) == rate
    else:
        with pytest.raises(UserError, match="printed no rate of all 3,000,000 records:\n9 records sent"):
            tool.perf_test(KAFKA, "t", tmp_path, cast("Any", None), 100)


def test_a_failed_program_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^the generator ended with exit code 1:\nno broker$"):
        tool.run("the generator", [sys.executable, "-c", "import sys; sys.exit('no broker')"], tmp_path / "log")
    assert tool.run("it", [sys.executable, "-c", "print(7)"], tmp_path / "other") == "7\n"
