"""Archives of classes take 150 MB each: those of a pyspark that is gone are not kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

from oncebench.run import spark_prepared


def make(folder: Path, name: str, made_for: str) -> None:
    (folder / name).mkdir()
    (folder / name / spark_prepared._MADE_FOR).write_text(made_for)
    (folder / name / spark_prepared._ARCHIVE).write_bytes(b"classes")


def test_only_archives_that_somebody_can_still_use_are_kept(tmp_path: Path) -> None:
    make(tmp_path, "other-java", f"{tmp_path}\n/java/17")
    make(tmp_path, "replaced", f"{tmp_path}\n/java/25")
    make(tmp_path, "gone", f"{tmp_path / 'no-more'}\n/java/17")
    (tmp_path / ".preparing-killed" / "made").mkdir(parents=True)
    spark_prepared._sweep(tmp_path, f"{tmp_path}\n/java/25")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other-java"]
    assert (tmp_path / "other-java" / spark_prepared._ARCHIVE).is_file()


def test_what_could_not_be_made_is_tried_again_after_a_day(tmp_path: Path) -> None:
    assert not spark_prepared._is_made(tmp_path / "never-tried")
    (tmp_path / "failed").mkdir()
    assert spark_prepared._is_made(tmp_path / "failed")
    yesterday = time.time() - spark_prepared._RETRY_S - 1
    os.utime(tmp_path / "failed", (yesterday, yesterday))
    assert not spark_prepared._is_made(tmp_path / "failed")
    make(tmp_path, "old", "anything")
    os.utime(tmp_path / "old", (yesterday, yesterday))
    assert spark_prepared._is_made(tmp_path / "old")
