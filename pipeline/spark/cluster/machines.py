"""Checks that each machine of a cluster has the files that a job needs there.

Spark's state stores write into the checkpoint from the executors. A machine may have another folder under the path of
the checkpoint. Its part of the state then goes there, and a restart on another machine would not find this part.
Clients read their certificates from the same path on every machine.

Promise: every executor checks before its first Python worker starts, also an executor that joins later. While the
driver runs, the checkpoint has a file with a name that no other folder has. A kill of the driver leaves this file, and
the next driver removes it. If the master runs all executors on the driver's machine, nothing is checked.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.stores.choose import Place

# The variable of an executor that has, as JSON, what its machine must have.
VARIABLE = "ONCEBENCH_NEEDED_FILES"
_MARK = ".shared-"
# The settings of librdkafka whose values are files; Java's settings are made of them.
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


@contextmanager
def needed_files(
    checkpoint: Place, generation: int, client: Mapping[str, Any], variables: Mapping[str, str]
) -> Iterator[Mapping[str, str]]:
    """Yields the variables of executors for `refuse_machine`.

    Puts the file into a checkpoint that is a folder, and removes it at the end of the context.

    Args:
        generation: of this driver.
        client: librdkafka's settings.
        variables: those that the sink's tasks read. The ones that name a file of this machine are checked, such as
            PGSSLROOTCERT.
    """
    files = {str(client[name]) for name in _FILES if name in client}
    files |= set(filter(_is_file_here, variables.values()))
    mark = None
    if isinstance(checkpoint, Path):
        folder = checkpoint.absolute()
        _remove_older(folder, generation)
        mark = folder / f"{_MARK}{generation}-{uuid.uuid4().hex}"
        mark.touch()
    try:
        yield {VARIABLE: json.dumps({"mark": None if mark is None else str(mark), "files": sorted(files)})}
    finally:
        if mark is not None:
            mark.unlink(missing_ok=True)


def refuse_machine() -> None:
    """Checks this machine, in an executor's Python.

    Raises:
        RefusedStart: a file is missing, or is not the driver's.
    """
    needed = json.loads(os.environ.get(VARIABLE, "{}"))
    if needed.get("mark"):
        _refuse_other_folder(Path(needed["mark"]))
    for name in needed.get("files", ()):
        try:
            Path(name).open("rb").close()
        except OSError as error:
            raise RefusedStart(
                f"the executors on {socket.gethostname()} cannot read {name} ({_text(error)}). The settings of this "
                "job name this file. Put the file under the same path on each machine of the cluster."
            ) from error


def _refuse_other_folder(mark: Path) -> None:
    own = mark.with_name(f"{mark.name}.{uuid.uuid4().hex}")
    try:
        mark.open("rb").close()
        own.touch()
        own.unlink()
    except OSError as error:
        raise RefusedStart(
            f"the executors on {socket.gethostname()} do not share the folder {mark.parent} with this driver "
            f"({_text(error)}). Spark's state stores write there. Give a checkpoint in a file system that every "
            "machine of the cluster mounts under the same path."
        ) from error


def _remove_older(folder: Path, generation: int) -> None:
    """Removes the files of drivers that were killed; a newer driver needs its own."""
    for left in folder.glob(f"{_MARK}*"):
        number = left.name.removeprefix(_MARK).partition("-")[0]
        if number.isdecimal() and int(number) < generation:
            left.unlink(missing_ok=True)


def _is_file_here(value: str) -> bool:
    with suppress(OSError):  # too long for a path
        return Path(value).is_absolute() and Path(value).is_file()
    return False


def _text(error: OSError) -> str:
    return error.strerror or type(error).__name__
