"""Every message with which a pipeline can end, each with its exit code.

The list is collected from the source: each `raise` of one of our errors in the library, the sinks and the pipeline.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebench.delivery import errors
from oncebench.delivery.errors import PipelineError, ReadError, StoppedGently
from pipeline import __main__ as program
from pipeline.spark.signals import Stopping
from tests import ROOT

ENDINGS = {name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PipelineError)}
# Exit code 2: a restart meets the same error. A service manager must not start the job again.
FOR_GOOD = {
    "RefusedStart", "AnotherDriver", "NondeterministicReplay", "PermanentFailure", "RecordTooLarge", "TooManyTasks",
    "CommitRefused",
}  # fmt: skip
# Exit code 1: a restart replays the open batch.
PASSING = {
    "PipelineError", "DeliveryFailed", "TransactionTooSlow", "TaskTriedAgain", "CommitUncertain", "TransactionLost",
    "NoKafka", "NoPostgres", "HangingTransaction", "QueryDied",
}  # fmt: skip
ROOMS = ("oncebench/delivery", "oncebench/sinks", "pipeline")
# Fewer words could not say what is wrong and what to do.
FEWEST_WORDS = 8


def raised() -> Iterator[tuple[str, str, str]]:
    """Yields (error, place, text) of each of our errors that is made in the source."""
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ENDINGS and node.args:
                parts = list(ast.walk(node.args[0]))
                texts = [part.value for part in parts if isinstance(part, ast.Constant)]
                if any(isinstance(part, ast.FormattedValue) for part in parts):
                    texts.append("{}")  # words that are not in the source
                text = " ".join(str(each) for each in texts)
                yield node.func.id, f"{path.relative_to(ROOT)}:{node.lineno}", text


MADE = list(raised())


def test_every_error_has_an_exit_code_that_this_list_knows() -> None:
    assert set(ENDINGS) == FOR_GOOD | PASSING | {"StoppedGently", "ReadError"}
    assert {name for name, kind in ENDINGS.items() if not kind.restart_helps} == FOR_GOOD


@pytest.mark.parametrize(("name", "place", "text"), MADE, ids=[f"{name} {place}" for name, place, _ in MADE])
def test_every_message_is_a_sentence_that_says_more_than_its_kind(name: str, place: str, text: str) -> None:
    assert name != "PipelineError", f"{place}: take the kind of error that says whether a restart helps"
    # Others are made from a text that is checked where it is made, or are for people who asked for a stop.
    if text and name not in ("StoppedGently", "ReadError"):
        assert len(text.split()) >= FEWEST_WORDS or "{}" in text, text


def test_each_kind_is_raised_somewhere() -> None:
    made = Counter(name for name, _, _ in MADE)
    by_table = {"PermanentFailure", "DeliveryFailed", "CommitUncertain", "CommitRefused", "TransactionLost"}
    assert {name for name in FOR_GOOD | PASSING if not made[name]} <= {"PipelineError", *by_table}


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
