"""Archives of classes take 150 MB each: those of a pyspark that is gone are not kept."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen.errors import LoadError
from oncebench.downloads.cache import CACHE_VARIABLE
from oncebench.errors import UserError
from oncebench.processes import child as process
from oncebench.run.spark import class_archive
from pipeline.spark.sockets import _PLACE, _prefix


def make(folder: Path, name: str, made_for: str) -> None:
    (folder / name).mkdir()
    (folder / name / class_archive._MADE_FOR).write_text(made_for)
    (folder / name / class_archive._ARCHIVE).write_bytes(b"classes")


def test_only_archives_that_somebody_can_still_use_are_kept(tmp_path: Path) -> None:
    make(tmp_path, "other-java", f"{tmp_path}\n/java/17")
    make(tmp_path, "replaced", f"{tmp_path}\n/java/25")
    make(tmp_path, "gone", f"{tmp_path / 'no-more'}\n/java/17")
    (tmp_path / ".preparing-killed" / "made").mkdir(parents=True)
    class_archive._sweep(tmp_path, f"{tmp_path}\n/java/25")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other-java"]
    assert (tmp_path / "other-java" / class_archive._ARCHIVE).is_file()


def test_what_could_not_be_made_is_tried_again_after_a_day(tmp_path: Path) -> None:
    assert not class_archive._is_made(tmp_path / "never-tried")
    (tmp_path / "failed").mkdir()
    assert class_archive._is_made(tmp_path / "failed")
    yesterday = time.time() - class_archive._RETRY_S - 1
    os.utime(tmp_path / "failed", (yesterday, yesterday))
    assert not class_archive._is_made(tmp_path / "failed")
    make(tmp_path, "old", "anything")
    os.utime(tmp_path / "old", (yesterday, yesterday))
    assert class_archive._is_made(tmp_path / "old")


class Pretended:
    """A pipeline process that does a batch or none, and ends as it is told."""

    def __init__(self, code: int) -> None:
        self.alive, self.returncode, self.code = True, 0, code

    def stop_gently(self, _timeout_s: float) -> None:
        self.alive, self.returncode = False, self.code


@pytest.mark.parametrize(
    ("batch", "code", "why"),
    [
        (False, 0, "no batch was done within 0.2 s, probably because the machine is busy"),
        (True, -9, "it was not written within 0.2 s, probably because the machine is busy"),
        (True, 2, "the pipeline ended with exit code 2"),
        (True, 0, None),
    ],
)
def test_why_there_is_no_archive_is_said_in_a_few_words_and_without_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: bool, code: int, why: str | None
) -> None:
    monkeypatch.setattr(class_archive, "_TIMEOUT_S", 0.2)
    if batch:
        (tmp_path / "progress.jsonl").write_text('{"kind": "batch"}\n')
    child: Any = Pretended(code)
    assert class_archive._why_not(child, tmp_path) == why


def test_a_failure_is_one_line_that_names_the_next_try_the_folder_and_a_log_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_archive: Path, folder: Path, *_: Any) -> str:
        (folder / "pipeline.log").write_text("line\n" * 20)
        return "no batch was done"

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(class_archive, "_train", fail)
    java: Any = SimpleNamespace(version="17", home=tmp_path)
    assert class_archive.prepare_spark(java, (), {}) == ()
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    (log,) = tmp_path.glob("spark/*/pipeline.log")
    assert "\n" not in told
    assert f"tried again in 24 hours, or at the next run if you delete {log.parent}; the log is {log}" in told
    assert log.read_text() == "line\n" * 20


def test_a_pipeline_that_was_killed_while_it_made_the_archive_leaves_no_sockets_and_no_half_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = Path(f"{_PLACE}/{_prefix(tmp_path)}999999999-x")
    archive = tmp_path / "classes.jsa"

    @contextmanager
    def start(*_: Any, **__: Any) -> Iterator[Pretended]:
        sockets.mkdir()
        archive.touch()
        yield Pretended(-9)

    kafka = SimpleNamespace(bootstrap_servers="x:1", create_topic=lambda name, _partitions: name)
    monkeypatch.setattr(class_archive, "_TIMEOUT_S", 0.1)
    monkeypatch.setattr(class_archive, "start_kafka", lambda *_: nullcontext(kafka))
    monkeypatch.setattr(class_archive, "run_load", lambda _config: None)
    monkeypatch.setattr(process, "start", start)
    java: Any = None
    assert class_archive._train(archive, tmp_path, java, (), {}) is not None
    assert not archive.exists()
    assert not sockets.exists()


@pytest.mark.parametrize(
    "error", [UserError("Kafka died; the end of its log:\nline"), LoadError("Kafka died; is it up?")]
)
def test_a_kafka_that_fails_while_the_archive_is_made_ends_no_command_and_its_words_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(class_archive, "start_kafka", fail)
    java: Any = SimpleNamespace(version="17", home=tmp_path)
    assert class_archive.prepare_spark(java, (), {}) == ()
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "could be made: Kafka died. It is tried again" in told
    (log,) = tmp_path.glob("spark/*/pipeline.log")
    assert log.read_text() == f"{error}\n"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OSError(errno.EMFILE, "too many files")])
def test_a_cache_without_room_for_the_archive_ends_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: OSError
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(class_archive, "_train", fail)
    java: Any = SimpleNamespace(version="17", home=tmp_path)
    assert class_archive.prepare_spark(java, (), {}) == ()
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("Spark will start more slowly")
