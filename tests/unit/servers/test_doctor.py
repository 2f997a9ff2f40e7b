"""The doctor checks and advises, and fetches nothing. No JVM, no network."""

import os
import resource
import tempfile
from pathlib import Path

import psutil
import pytest
import requests

from oncebench.servers import doctor
from oncebench.servers.doctor import Check, checks

NAMES = ["python", "java", "cache", "jars", "ports", "memory", "cores", "open files", "temporary", "disk", "fsync"]


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java, an empty cache, and no downloads."""
    monkeypatch.setenv("ONCEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(requests, "get", lambda *_, **__: pytest.fail("the doctor tried to download"))


def found(name: str) -> Check:
    return next(check for check in checks() if check.name == name)


def test_every_failed_check_has_an_advice(tmp_path: Path) -> None:
    result = checks(tmp_path / "work" / "that" / "is" / "not" / "there")
    assert [check.name for check in result] == NAMES
    assert all(check.detail and bool(check.advice) != check.ok for check in result)
    assert all(check.detail.endswith(f"at {tmp_path}") for check in result if check.name in ("disk", "fsync"))


def test_missing_java_and_jars_fail_and_nothing_is_fetched(tmp_path: Path) -> None:
    failed = {check.name: check for check in checks() if not check.ok}
    assert {"java", "jars"} <= failed.keys()
    assert "the first run fetches" in failed["java"].advice
    assert failed["jars"].detail.startswith("0 of ")
    assert not (tmp_path / "cache").exists()


def test_each_shortage_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_DISK_BYTES", 10**18)
    monkeypatch.setattr(doctor, "_MEMORY_BYTES", psutil.virtual_memory().total + 1)
    monkeypatch.setattr(doctor, "_CORES", 10**6)
    monkeypatch.setattr(doctor, "_FILES", 10**12)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    monkeypatch.setattr(doctor, "_SLOW_FSYNC_MS", 0.0)
    monkeypatch.setattr(doctor, "_PYTHON", (4, 0))
    failed = {check.name for check in checks() if not check.ok}
    assert {"disk", "memory", "cores", "open files", "fsync", "python"} <= failed


def test_a_noexec_temporary_folder_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("temporary").ok
    real = os.statvfs(tempfile.gettempdir())
    fields = [*real[:8], real.f_flag | os.ST_NOEXEC, real[9]]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    assert found("temporary").advice == "set TMPDIR and --work-dir to folders that are not mounted noexec"


def test_a_check_that_raises_is_a_failed_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "statvfs", refuse)
    result = {check.name: check for check in checks()}
    assert list(result) == NAMES
    assert not result["temporary"].ok
    assert result["python"].ok
