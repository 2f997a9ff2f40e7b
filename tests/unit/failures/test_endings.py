"""Every kind of error with which a pipeline can end, each with its exit code."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path

import pytest

from oncebench.delivery import errors
from oncebench.delivery.errors import PipelineError, ReadError, StoppedGently
from pipeline import __main__ as program
from pipeline.spark.signals import Stopping
from tools.endings import endings

ENDINGS = {name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PipelineError)}
# Exit code 2: a restart meets the same error. A service manager must not start the job again.
FOR_GOOD = {
    "RefusedStart", "AnotherDriver", "NondeterministicReplay", "PermanentFailure", "RecordTooLarge", "TooManyTasks",
    "CommitRefused", "StoreRefuses",
}  # fmt: skip
# Exit code 1: a restart replays the open batch.
PASSING = {
    "PipelineError", "DeliveryFailed", "TransactionTooSlow", "TaskTriedAgain", "WriterStartedAgain", "CommitUncertain",
    "TransactionLost", "NoKafka", "NoPostgres", "NoStore", "HangingTransaction", "QueryDied", "OlderDriver",
}  # fmt: skip


def test_every_error_has_an_exit_code_that_this_list_knows() -> None:
    assert set(ENDINGS) == FOR_GOOD | PASSING | {"StoppedGently", "ReadError"}
    assert {name for name, kind in ENDINGS.items() if not kind.restart_helps} == FOR_GOOD


def test_each_kind_is_raised_somewhere_and_says_whether_a_restart_helps() -> None:
    made = Counter(kind for each in endings() for kind in each.kind.split("/"))
    assert {name for name in FOR_GOOD | PASSING if not made[name]} == set()
    assert made["PipelineError"] == 1, "take the kind of error that says whether a restart helps"


@pytest.mark.parametrize("name", sorted(ENDINGS))
def test_the_exit_code_of_each_kind(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(_path: Path) -> None:
        raise ENDINGS[name]("the words of the end")

    monkeypatch.setattr(program, "read_config", ends)
    monkeypatch.setattr(Stopping, "obey", lambda _self: None)
    monkeypatch.setattr("faulthandler.enable", lambda: None)  # the captured stderr is no file
    code = program.main([str(tmp_path / "job.json")])
    said = capsys.readouterr().err
    if ENDINGS[name] is StoppedGently:
        assert (code, said) == (0, "")
        return
    assert code == (2 if name in FOR_GOOD else 1)
    beginning = "refused to start: " if name == "RefusedStart" else f"stopped: {name}: "
    assert said == f"{beginning}the words of the end\n"
    assert ENDINGS[name] is not ReadError or code == 1
