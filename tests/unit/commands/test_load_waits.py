"""`oncebench load` prints what it waits for until the first events are sent."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from oncebench.commands import load as command
from oncebench.errors import UserError


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
