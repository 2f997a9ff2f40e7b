"""The archive of Spark's classes: unused archives are deleted, and a failure is one warning."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen.errors import LoadError
from oncebench.downloads.cache import CACHE_VARIABLE
from oncebench.errors import MissingEnvironment, UserError
from oncebench.lab.spark import class_archive, executor_archive
from oncebench.processes import child as process
from oncebench.servers.spark_cluster import Start
from pipeline.spark.sockets import _PLACE, _prefix


def make(folder: Path, name: str, made_for: str) -> None:
    (folder / name).mkdir()
    (folder / name / class_archive._MADE_FOR).write_text(made_for)
    (folder / name / class_archive._ARCHIVE).write_bytes(b"classes")


def test_only_archives_in_use_are_kept(tmp_path: Path) -> None:
    make(tmp_path, "other-java", f"{tmp_path}\n/java/17")
    make(tmp_path, "replaced", f"{tmp_path}\n/java/25")
    make(tmp_path, "gone", f"{tmp_path / 'no-more'}\n/java/17")
    class_archive._remove_unused(tmp_path, f"{tmp_path}\n/java/25")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other-java"]
    assert (tmp_path / "other-java" / class_archive._ARCHIVE).is_file()


def test_driver_and_executors_have_an_archive_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(archive: Path, _folder: Path) -> None:
        archive.write_bytes(b"classes")

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    java: Any = SimpleNamespace(version="17", home=tmp_path)
    options = [class_archive.archive_of(user, java, (), {}, write) for user in ("", "executors")]
    assert len({*options}) == 2
    assert all(Path(option.partition("=")[2]).is_file() for (option,) in options)


class FakePipeline:
    """A pipeline process that ends with a given exit code."""

    def __init__(self, code: int) -> None:
        self.alive, self.returncode, self.code = True, 0, code

    def stop_gently(self, _timeout_s: float) -> None:
        self.alive, self.returncode = False, self.code


@pytest.mark.parametrize(
    ("batch", "code", "failure"),
    [
        (False, 0, "no batch was finished within 0.2 s, probably because the machine is busy"),
        (True, -9, "the archive was not written within 0.2 s, probably because the machine is busy"),
        (True, 2, "the pipeline ended with exit code 2"),
        (True, 0, None),
    ],
)
def test_a_failed_attempt_returns_a_short_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: bool, code: int, failure: str | None
) -> None:
    monkeypatch.setattr(class_archive, "_TIMEOUT_S", 0.2)
    if batch:
        (tmp_path / "progress.jsonl").write_text('{"kind": "batch"}\n')
    child: Any = FakePipeline(code)
    assert class_archive._run_one_batch(child, tmp_path) == failure


def test_the_warning_is_one_line_with_the_next_attempt_and_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_archive: Path, folder: Path, *_: Any) -> str:
        (folder / "pipeline.log").write_text("line\n" * 20)
        return "no batch was finished"

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(class_archive, "_write_archive", fail)
    java: Any = SimpleNamespace(version="17", home=tmp_path)
    assert class_archive.prepare_spark(java, (), {}) == ()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    (log,) = tmp_path.glob("spark/*/pipeline.log")
    assert "\n" not in warning
    assert f"next attempt is in 24 hours, or at the next run if you delete {log.parent}. See the log {log}" in warning
    assert log.read_text() == "line\n" * 20


def test_a_killed_pipeline_leaves_no_sockets_and_no_partial_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = Path(f"{_PLACE}/{_prefix(tmp_path)}999999999-x")
    archive = tmp_path / "classes.jsa"

    @contextmanager
    def start(*_: Any, **__: Any) -> Iterator[FakePipeline]:
        sockets.mkdir()
        archive.touch()
        yield FakePipeline(-9)

    kafka = SimpleNamespace(bootstrap_servers="x:1", create_topic=lambda name, _partitions: name)
    monkeypatch.setattr(class_archive, "_TIMEOUT_S", 0.1)
    monkeypatch.setattr(class_archive, "start_kafka", lambda *_: nullcontext(kafka))
    monkeypatch.setattr(class_archive, "run_load", lambda _config: None)
    monkeypatch.setattr(process, "start", start)
    java: Any = None
    assert class_archive._write_archive(archive, tmp_path, java, (), {}) is not None
    assert not archive.exists()
    assert not sockets.exists()


@pytest.mark.parametrize(
    "error", [UserError("Kafka died; the end of its log:\nline"), LoadError("Kafka died; is it up?")]
)
def test_a_kafka_failure_is_a_warning_and_its_message_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(class_archive, "start_kafka", fail)
    java: Any = SimpleNamespace(version="17", home=tmp_path)
    assert class_archive.prepare_spark(java, (), {}) == ()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "could be made: Kafka died. The next attempt" in warning
    (log,) = tmp_path.glob("spark/*/pipeline.log")
    assert log.read_text() == f"{error}\n"


def test_executors_without_an_archive_start_from_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise MissingEnvironment("the master did not get its workers")

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(executor_archive, "start_spark_cluster", fail)
    java: Any = SimpleNamespace(version="17", home=tmp_path)
    start = executor_archive.prepare_executors(java, (), {})
    assert start == Start(tmp_path / "spark" / "no-settings")
    assert start.settings is not None and list(start.settings.iterdir()) == []
    assert executor_archive.prepare_executors(java, (), {}) == start, "the next attempt comes a day later"
    (warning,) = [line for line in caplog.messages if line.startswith("Spark will start more slowly")]
    assert ": the master did not get its workers. The next attempt is in 24 hours" in warning


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OSError(errno.EMFILE, "too many files")])
def test_a_full_cache_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: OSError
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(class_archive, "_write_archive", fail)
    java: Any = SimpleNamespace(version="17", home=tmp_path)
    assert class_archive.prepare_spark(java, (), {}) == ()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("Spark will start more slowly")
