"""Sockets have short names in a private folder, which is removed after a crash too."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pipeline.config import PipelineConfig
from pipeline.spark.session import settings
from pipeline.spark.sockets import _PLACE, _prefix, short_sockets, sweep

CONFIG = PipelineConfig("", "", {}, "", "", "", "", "", Path(), Path())
SUN_PATH = 107
OF_SPARK = len("/.") + 36 + len(".sock")  # a UUID between them


def test_the_sockets_folder_is_private_short_and_removed(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    with short_sockets(replace(CONFIG, record=deep)) as config:
        folder = Path(config.sockets or "")
        assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, os.getuid())
        assert len(str(folder)) + OF_SPARK <= SUN_PATH
        assert settings(config)["spark.python.unix.domain.socket.dir"] == str(folder)
    assert not folder.exists()


def test_only_sockets_of_dead_pipelines_are_removed(tmp_path: Path) -> None:
    record, other = tmp_path / "mine", tmp_path / "another's"
    dead = [Path(f"{_PLACE}/{_prefix(folder)}999999999-x") for folder in (record, other)]
    running = Path(f"{_PLACE}/{_prefix(record)}{os.getppid()}-x")
    try:
        for folder in (*dead, running):
            folder.mkdir()
        sweep(record)
        assert [folder.exists() for folder in (*dead, running)] == [False, True, True]
        with short_sockets(replace(CONFIG, record=other)):
            assert not dead[1].exists()
    finally:
        for folder in (*dead, running):
            if folder.exists():
                folder.rmdir()


def test_a_cluster_uses_tcp(tmp_path: Path) -> None:
    with short_sockets(replace(CONFIG, record=tmp_path, master="spark://host:7077")) as config:
        assert config.sockets is None
        assert not any("socket" in name for name in settings(config))
