"""The SPARK_HOME of every pipeline that the suite starts, kept in the cache (see `pipeline.spark.home`).

Promise: its path stays the same from run to run, for an archive of classes is checked against it. What can go wrong:
the cache can't hold it; then Spark starts as ever, and more slowly.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from oncebench.downloads.cache import cache_dir
from pipeline.spark.home import link_spark


def spark_home() -> Path | None:
    """The folder; None where the cache can't hold it, or its path would be taken for two on a class path."""
    installed = hashlib.sha256(str(Path(pyspark.__file__).parent).encode()).hexdigest()[:16]
    home = cache_dir() / "spark" / f"home-{installed}"
    if ":" in str(home):
        return None
    try:
        home.mkdir(parents=True, exist_ok=True)
        link_spark(home)
    except OSError:
        return None
    return home
