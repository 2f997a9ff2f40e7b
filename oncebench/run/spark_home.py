"""A SPARK_HOME without a `python` folder: Python workers then take pyspark from where pip put it.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on its workers' path, and a zip holds no compiled files: each
start of the pipeline would compile what it imports anew, twice (the daemon and the stateful operator's own process),
0.7 s of processor time each. Promise: links into the installed pyspark and nothing else; made once, in the cache, for
the path is part of what an archive of classes is checked against. Where it cannot be made Spark starts as ever.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import pyspark

from oncebench.services.cache import cache_dir

_PARTS = ("bin", "jars")  # all that starting Spark needs


def spark_home() -> Path | None:
    """The folder; None where the cache can't hold it, or its path would be taken for two on a class path."""
    installed = Path(pyspark.__file__).parent
    home = cache_dir() / "spark" / f"home-{hashlib.sha256(str(installed).encode()).hexdigest()[:16]}"
    if ":" in str(home):
        return None
    try:
        home.mkdir(parents=True, exist_ok=True)
        for part in _PARTS:
            with suppress(FileExistsError):  # another run was faster
                (home / part).symlink_to(installed / part)
    except OSError:
        return None
    return home
