"""Temporary files of killed pipelines are removed by the next pipeline.

Running pipelines keep theirs.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import PipelineConfig
from pipeline.spark.temporary import own_temporary

CONFIG = PipelineConfig("", "", {}, "", "", "", "", "", Path(), Path(), jvm_options=("-Xshare:auto",))


def test_files_go_below_the_record_and_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # as Python has it once it was asked
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp")
    dead, running = tmp_path / "tmp-999999999", tmp_path / f"tmp-{os.getppid()}"
    for folder in (dead, running):
        folder.mkdir()
        (folder / "librocksdbjni.so").touch()
    with own_temporary(replace(CONFIG, record=tmp_path)) as config:
        own = tmp_path / f"tmp-{os.getpid()}"
        assert config.jvm_options == ("-Xshare:auto", f"-Djava.io.tmpdir={own}")
        assert Path(tempfile.mkdtemp()).parent == own
        assert os.environ["SPARK_LOCAL_DIRS"] == str(own)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([own.name, running.name])
    assert list(tmp_path.iterdir()) == [running]
