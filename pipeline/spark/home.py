"""Makes a SPARK_HOME without a `python` folder: workers import pyspark from pip's place.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on its workers' path, and a zip holds no compiled files. Each
start of the pipeline would compile its imports twice, in the daemon and in the stateful operator's own process: 0.7 s
of processor time each. Promise: the folder contains links to the installed pyspark and nothing else.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyspark

_PARTS = ("bin", "jars")  # the folders that Spark needs for its start


def link_spark(folder: Path) -> None:
    """Makes an existing folder a SPARK_HOME, unless it is one already. Raises OSError."""
    installed = Path(pyspark.__file__).parent
    for part in _PARTS:
        with suppress(FileExistsError):  # another process was faster
            (folder / part).symlink_to(installed / part)
