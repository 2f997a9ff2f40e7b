"""Fixtures that several files of the unit tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.faults.fake_pipeline import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A pretended pipeline before its first fault.

    Its checkpoint has entries of three batches.
    """
    for log in ("offsets", "commits"):
        (tmp_path / "checkpoint" / log).mkdir(parents=True)
        for batch in (7, 8, 10):
            (tmp_path / "checkpoint" / log / str(batch)).write_bytes(b"12345678")
        (tmp_path / "checkpoint" / log / ".10.crc").write_bytes(b"c")
    for partition, change in (("0", b"chan"), ("1", b"change")):
        (tmp_path / "checkpoint" / "state" / "0" / partition).mkdir(parents=True)
        for version in (9, 10):
            (tmp_path / "checkpoint" / "state" / "0" / partition / f"{version}.changelog").write_bytes(change)
        (tmp_path / "checkpoint" / "state" / "0" / partition / ".10.changelog.crc").write_bytes(b"c")
    return World(tmp_path)
