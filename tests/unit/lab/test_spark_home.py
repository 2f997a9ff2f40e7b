"""The suite's SPARK_HOME has no `python` folder: workers would compile pyspark again."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.downloads.cache import CACHE_VARIABLE
from oncebench.lab.spark.home import spark_home


def test_it_links_spark_without_the_zipped_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    home = spark_home()
    assert home is not None
    assert spark_home() == home
    assert sorted(path.name for path in home.iterdir()) == ["bin", "jars"]
    assert (home / "bin" / "spark-submit").is_file()
    assert any((home / "jars").glob("spark-core_*.jar"))
