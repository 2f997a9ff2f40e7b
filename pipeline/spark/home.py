"""A SPARK_HOME without a `python` folder: Python workers then take pyspark from where pip put it.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on its workers' path, and a zip holds no compiled files: each
start of the pipeline would compile what it imports anew, twice (the daemon and the stateful operator's own process),
0.7 s of processor time each. Promise: links into the installed pyspark, and nothing else.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyspark

_PARTS = ("bin", "jars")  # all that starting Spark needs


def link_spark(folder: Path) -> None:
    """Makes a folder that is there a SPARK_HOME; one that is one already stays as it is. Raises OSError."""
    installed = Path(pyspark.__file__).parent
    for part in _PARTS:
        with suppress(FileExistsError):  # somebody else was faster
            (folder / part).symlink_to(installed / part)
