"""Kafka's class archive: whole, or none and one more attempt a day later. No JVM."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from oncebench.errors import UserError
from oncebench.servers.kafka import class_archive
from oncebench.servers.kafka.class_archive import StartFiles, start_files

SIGTERM_CODE = 143


class Jvm:
    """A process that ends with a given exit code, and may write an archive."""

    def __init__(self, code: int, in_time: bool) -> None:
        self.returncode, self.in_time = code, in_time

    def send(self, _number: int) -> None:
        pass

    def wait(self, _timeout_s: float) -> bool:
        return self.in_time

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """How the broker ends that writes the archive."""
    java: Any = type("Java", (), {"version": "17", "home": "/java", "executable": "/java/bin/java"})
    monkeypatch.setenv("ONCEBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(class_archive, "jars", lambda _: ())
    monkeypatch.setattr(class_archive, "find_java", lambda: java, raising=False)

    def ends(code: int, in_time: bool = True, serves: bool = True) -> None:
        def start(name: str, command: list[str], log: Path, **_: object) -> Jvm:
            log.touch()
            if "format" in name:
                data = log.parent / "data"
                data.mkdir()
                (data / "bootstrap.checkpoint").write_bytes(b"features")
                return Jvm(0, True)
            option = next(word for word in command if word.startswith("-XX:ArchiveClassesAtExit="))
            Path(option.partition("=")[2]).write_bytes(b"half" if code != SIGTERM_CODE else b"classes")
            return Jvm(code, in_time)

        def wait(*_: object) -> None:
            if not serves:
                raise UserError("Kafka did not serve within 90 s")

        monkeypatch.setattr(class_archive.process, "start", start)
        monkeypatch.setattr(class_archive, "wait_until_serving", wait)
        monkeypatch.setattr(class_archive, "command", lambda _j, _f, flags, *rest: [*flags, *map(str, rest)])
        made.append(start_files(java))

    made: list[StartFiles] = []
    ends.made = made  # type: ignore[attr-defined]
    return ends


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ({"code": 1}, "ended with exit code 1"),
        ({"code": -9, "in_time": False}, "did not end within 120 s"),
        ({"code": -9, "serves": False}, "did not serve within 90 s"),
    ],
)
def test_a_failed_attempt_leaves_no_archive_and_is_repeated_a_day_later(
    ending: dict[str, Any], why: str, broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broker(**ending)
    assert broker.made[0].flags == ()
    assert (broker.made[0].folder / "bootstrap.checkpoint").read_bytes() == b"features"
    assert why in caplog.text and "The next attempt is in 24 hours" in caplog.text
    broker(SIGTERM_CODE)
    assert broker.made[1].flags == (), "not within a day"
    os.utime(broker.made[0].folder, (0, 0))
    broker(SIGTERM_CODE)
    assert broker.made[2].flags == (f"-XX:SharedArchiveFile={broker.made[0].folder}/classes.jsa",)


def test_an_empty_checkpoint_is_made_again(broker: Any) -> None:
    """A power failure may leave an empty file."""
    broker(SIGTERM_CODE)
    (broker.made[0].folder / "bootstrap.checkpoint").write_bytes(b"")
    broker(SIGTERM_CODE)
    assert (broker.made[0].folder / "bootstrap.checkpoint").read_bytes() == b"features"
