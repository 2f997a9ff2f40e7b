"""The command of the peer: its options are checked before anything starts."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.commands import run
from oncebench.errors import UserError
from peers import command
from peers.flink.__main__ import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--variant", "two-phase"), "is not flink-STATE-INTERVALms"),
        (("--outage", "5"), "--outage has no effect here"),
        (("--rate", "never"), "rate"),
    ],
)
def test_a_wrong_option_is_refused_before_a_start(words: tuple[str, ...], message: str) -> None:
    found = CliRunner().invoke(main, ["--guarantee", "exactly-once", *words])
    assert isinstance(found.exception, UserError) and message in str(found.exception)


def test_a_report_that_cannot_be_written_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_fills(*_: object) -> dict[str, Any]:
        monkeypatch.setattr(Path, "replace", no_room)
        return {"interrupted": False}

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "run_one", disk_fills)
    monkeypatch.setattr(run, "summary", lambda *_: "")
    Path("report.json").write_text("earlier", "utf-8")
    words = ["--guarantee", "exactly-once", "--json", "report.json", "--work-dir", "work"]
    failed = CliRunner().invoke(main, words).exception
    assert isinstance(failed, UserError), failed
    assert str(failed).endswith("or instead of --json take the same report from work/report.json")
    assert Path("report.json").read_text("utf-8") == "earlier"


def test_the_help_names_the_options_of_a_cell() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    assert all(option in text for option in ("--variant", "--random-kills", "--outage", "--transaction-timeout"))
    assert "--state-store" not in text  # a setting of Spark's pipeline
