"""A JVM's temporary files stay in its own folder, and go with the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.processes.temporary import emptied, jvm_option


def test_a_start_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "tmp"
    (emptied(folder) / "liblz4-java.so").touch()
    assert list(emptied(folder).iterdir()) == []


def test_the_option_is_independent_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert jvm_option(Path("tmp")) == f"-Djava.io.tmpdir={tmp_path}/tmp"
