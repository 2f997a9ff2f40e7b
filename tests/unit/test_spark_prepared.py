"""Archives of classes take 150 MB each: those of a pyspark that is gone are not kept."""

from __future__ import annotations

from pathlib import Path

from oncebench.run import spark_prepared


def test_archives_of_a_pyspark_that_is_gone_are_deleted(tmp_path: Path) -> None:
    for name, home in (("kept", tmp_path), ("gone", tmp_path / "no-more")):
        (tmp_path / name).mkdir()
        (tmp_path / name / spark_prepared._MADE_FOR).write_text(str(home))
        (tmp_path / name / spark_prepared._ARCHIVE).write_bytes(b"classes")
    spark_prepared._sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]
    assert (tmp_path / "kept" / spark_prepared._ARCHIVE).is_file()
