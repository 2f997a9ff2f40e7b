"""`oncebench load` prints what it waits for until the first events are sent.

It also prints why it ended early.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import load as command
from oncebench.errors import ExitCode, Interrupted, UserError


class SlowGenerator:
    """A generator that ends without a status line after it was polled a few times."""

    def __init__(self) -> None:
        self.polls = 0

    @property
    def alive(self) -> bool:
        self.polls += 1
        return self.polls < 5

    def __enter__(self) -> SlowGenerator:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_slow_start_is_displayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(_name: str, _command: object, log: Path, **_others: Any) -> SlowGenerator:
        log.parent.mkdir()
        log.touch()
        return SlowGenerator()

    monkeypatch.setattr(command.process, "start", start)
    monkeypatch.setattr(command, "WAIT_LINE_EVERY_S", 0.1)
    with pytest.raises(UserError):
        command._send({}, tmp_path, threading.Event())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "starting the generator"
    assert set(lines[1:]) == {"waiting for the generator's first events, 0 s"}


def test_an_interrupted_generator_is_asked_twice_before_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Waiting(SlowGenerator):
        def stop_gently(self, timeout_s: float, again_after_s: float) -> None:
            assert 0 < again_after_s < timeout_s
            (tmp_path / "load.jsonl").write_text(json.dumps({"done": True, "summary": {"sent": 7}}) + "\n")

    (tmp_path / command.LOG).parent.mkdir()
    (tmp_path / command.LOG).touch()
    monkeypatch.setattr(command.process, "start", lambda *_, **__: Waiting())
    interrupted = threading.Event()
    interrupted.set()
    assert command._send({}, tmp_path, interrupted) == {"sent": 7}


def test_a_generator_that_was_interrupted_before_its_first_event_has_nothing_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Starting(SlowGenerator):
        def stop_gently(self, *_: float, **__: float) -> None:
            pass

    monkeypatch.setattr(command.process, "start", lambda *_, **__: Starting())
    interrupted = threading.Event()
    interrupted.set()
    with pytest.raises(Interrupted, match="interrupted before the load began: there is nothing to report"):
        command._send({}, tmp_path, interrupted)


def test_the_data_of_an_own_broker_are_deleted_also_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def started(folder: Path) -> Iterator[Any]:
        (folder / "kafka").mkdir()
        yield SimpleNamespace(access=SimpleNamespace(as_json=dict), fresh_topic=lambda *_: "t")

    def fails(*_: object) -> None:
        raise UserError("the generator ended without a message")

    monkeypatch.setattr(command, "start_kafka", started)
    monkeypatch.setattr(command, "_send", fails)
    ended = CliRunner().invoke(cli, ["load", "--work-dir", str(tmp_path / "work")])
    assert str(ended.exception) == "the generator ended without a message"
    assert not (tmp_path / "work" / "kafka").exists()


def test_a_load_that_ended_early_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = {
        "planned": 100, "sent": 1, "sent_share": 0.01, "acknowledged": 1, "failed": 0, "unknown": 0,
        "events_per_s": 1.0, "duration_s": 1.0, "lateness_ms": {"p50": 1.0, "p99": 1.0, "max": 1.0},
        "error": "the topic is gone",
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "_send", lambda *_: done)
    monkeypatch.setattr(command, "external", lambda _: None)
    ended = CliRunner().invoke(cli, ["load", "--bootstrap-servers", "b:1", "--topic", "t"])
    assert ended.stdout.startswith("planned 100  sent 1 ")
    assert isinstance(ended.exception, UserError)
    assert ended.exception.exit_code == ExitCode.ERROR
    assert f"ended before its plan: the topic is gone. Its log is {tmp_path}/results" in str(ended.exception)
