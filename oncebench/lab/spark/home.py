"""The SPARK_HOME of every pipeline that the suite starts, kept in the cache.

`pipeline.spark.home` describes its content. Promise: its path is the same in every run, because the JVM checks an
archive of classes against the path. Failure: the cache has no room for it; then Spark starts more slowly, from its own
folder.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from oncebench.downloads.cache import cache_dir
from pipeline.spark.home import link_spark


def spark_home() -> Path | None:
    """Returns the folder, or None if the cache can't hold it."""
    installed = hashlib.sha256(str(Path(pyspark.__file__).parent).encode()).hexdigest()[:16]
    home = cache_dir() / "spark" / f"home-{installed}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        link_spark(home)
    except OSError:
        return None
    return home
