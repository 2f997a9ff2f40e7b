"""The newest driver in an output folder, and the batches that at-most-once has claimed.

Promise: a driver that takes a sink_id writes its name first, then deletes prepared files of others and reads the final
names and the claim. A driver that publishes or writes does it the other way round: its file or claim is there first,
then it reads the name. So of two drivers, at least one sees the other. Readers ignore both files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from oncebench.delivery.contract import WHOLE_BATCH, Mark
from oncebench.delivery.durable import fsync_folder
from oncebench.delivery.errors import AnotherDriver, RefusedStart
from oncebench.delivery.stores.entries import put_in_place_of, refuse_damaged
from oncebench.delivery.stores.posix import remove_leftovers

# Temporary files of the folder's id, of drivers and of claims, which a power cut may leave.
_LEFTOVERS = "..oncebench-*.json.*"


def settle(folder: Path) -> None:
    """Forces the notes that are visible in a folder to the disk.

    A start notes in its journal what it finds here, and the journal then forgets what it knew before. So a power cut
    must not bring an older note back. A folder that cannot be read is reported by the checks of the start.
    """
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        fsync_folder(folder)


def newest_driver(file: Path) -> tuple[str, int] | None:
    """Returns name and generation of the newest driver; None if none was noted."""
    with _refuse_damaged(file):
        found = read_note(file)
        return None if found is None else (str(found["driver"]), int(found["generation"]))


def take(file: Path, driver: str, generation: int) -> None:
    """Notes this driver as the newest one, and removes what dead drivers left of their notes.

    Raises:
        RefusedStart: a newer generation is noted.
    """
    newest = newest_driver(file)
    if newest is not None and newest[1] > generation:
        raise RefusedStart(
            f"{file} notes generation {newest[1]}, and this start is generation {generation} by its journal: the "
            "journal is older, or another's. Nothing was written. Restore the newest journal with its checkpoint, or "
            "take a new checkpoint, sink_id and output."
        )
    put_in_place_of(file.parent, file.name, {"driver": driver, "generation": generation})
    remove_leftovers(file.parent, _LEFTOVERS)


def stop_if_older(file: Path, driver: str) -> None:
    """Raises AnotherDriver if another driver is noted."""
    newest = newest_driver(file)
    if newest is not None and newest[0] != driver:
        raise AnotherDriver(
            f"another driver has taken this sink_id in {file} (generation {newest[1]}). This driver stops and has "
            "published nothing more. Let only one driver run per sink_id: two checkpoints are copies of one, or two "
            "jobs share the sink_id."
        )


def claim(file: Path, batch: int, driver: str) -> None:
    """Notes durably that a driver claims a batch, or writes at all (NO_BATCH)."""
    put_in_place_of(file.parent, file.name, {"batch": batch, "driver": driver})


def claimed(file: Path) -> dict[int, Mark]:
    """Returns the newest claimed batch and its writer as a mark."""
    with _refuse_damaged(file):
        found = read_note(file)
        # Under exactly-once the final names show the batches, and the note (NO_BATCH) shows only who has written last.
        return {} if found is None else {WHOLE_BATCH: Mark(int(found["batch"]), 0, 0, str(found["driver"]))}


def read_note(file: Path) -> Mapping[str, Any] | None:
    """Returns a note of the folder; None if there is none."""
    try:
        return dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return None


def _refuse_damaged(file: Path) -> AbstractContextManager[None]:
    """Converts errors of a note that is not as it was written to RefusedStart.

    The note is no part of the checkpoint.
    """
    return refuse_damaged(
        file,
        "If only this checkpoint has written here as this sink_id, and it is no older copy, remove the file and start "
        "again. Otherwise take a new checkpoint, sink_id and output.",
    )
