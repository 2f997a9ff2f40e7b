"""Failpoints with names of their own, for a sink that a user certifies.

    from oncebench import failpoint

    def write_batch(df, batch_id):
        stage(df, batch_id)
        failpoint("staged")
        publish(batch_id)

Promise: `failpoint` does nothing outside a run of `oncebench certify`. In a run it can be called in the driver, in a
Spark task, and in any other process that inherits the environment.

The driver writes a file before each batch: the run's faults and the number of the batch. The environment variable
VARIABLE holds the path of that file.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from oncebench.delivery.failpoints import OWN, Failpoints, parse_fault

VARIABLE = "ONCEBENCH_FAILPOINTS"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def failpoint(name: str) -> None:
    """Reaches the failpoint `name`; does nothing outside a run.

    Args:
        name: small letters, digits and `-`.

    Raises:
        ValueError: in a run, if the name has another form.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    if not _NAME.fullmatch(name):
        raise ValueError(f"failpoint({name!r}): a name has small letters, digits and `-`, such as 'rows-staged'")
    state = json.loads(Path(path).read_text())
    faults = tuple(parse_fault(text) for text in state["faults"])
    trace = None if state["trace"] is None else Path(state["trace"])
    Failpoints(faults, Path(state["hits"]), trace).reach(f"{OWN}{name}", state["batch"])


def begin_batch(path: Path, failpoints: Failpoints, batch: int) -> None:
    """Writes the file that `failpoint` reads, and names it in the environment of this process and its children."""
    state = {
        "faults": [str(fault) for fault in failpoints.faults],
        "hits": str(failpoints.hits),
        "trace": None if failpoints.trace is None else str(failpoints.trace),
        "batch": batch,
    }
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(json.dumps(state))
    new.replace(path)
    os.environ[VARIABLE] = str(path)
