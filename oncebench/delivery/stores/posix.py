"""A folder in a mounted file system with hard links and fsync.

Promise: see `oncebench.delivery.stores.interface`. Once a put has returned, the entry survives kill -9 and power loss,
because file and folder are fsynced. link(2) puts an entry in place and refuses an existing name. On NFS, a link whose
answer was lost counts as done. What can go wrong: a file system without link or fsync; then the first entry fails with
the reason.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from oncebench.delivery.durable import fsync_folder, make_folder, refuse_wrong_place

# A temporary file exists for the milliseconds of one fsync; after an hour its writer is dead.
LEFTOVER_S = 3600.0
# A folder's time stamp has steps of up to 10 ms, so a younger stamp than this may hide a later change.
STAMP_NS = 50_000_000


class PosixStore:
    """The files of a folder.

    Args:
        folder: its path.
        inner: whether the first entry makes the folder, which is in a folder that exists.
    """

    answers_can_be_lost = False

    def __init__(self, folder: Path, *, inner: bool = False) -> None:
        self.folder = folder
        self._inner = inner
        self._listed: tuple[int, Sequence[str]] | None = None  # the folder's time stamp, and the names then

    def __str__(self) -> str:
        return str(self.folder)

    def prepare(self) -> None:
        make_folder(self.folder)  # an entry is only as durable as its folder
        remove_leftovers(self.folder, ".*.json.*")

    def put_exclusively(self, name: str, content: bytes) -> bool:
        temporary = self._temporary(name)
        try:
            _write_durably(temporary, content)
            try:
                os.link(temporary, self.folder / name)
            except FileExistsError:
                # A client of NFS sends a request again if its answer was lost, and may refuse its own link. Nobody else
                # links this file: two names show that the link is there (open(2), O_EXCL).
                if temporary.stat().st_nlink != 2:
                    return False
        finally:
            temporary.unlink(missing_ok=True)
        fsync_folder(self.folder)
        return True

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        if not durable:
            self._put_unforced(name, content)
            return
        temporary = self._temporary(name)
        try:
            _write_durably(temporary, content)
            temporary.replace(self.folder / name)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_folder(self.folder)

    def _put_unforced(self, name: str, content: bytes) -> None:
        if self._inner:
            self.folder.mkdir(exist_ok=True)
        temporary = self.folder / f".{name}"
        temporary.write_bytes(content)
        temporary.replace(self.folder / name)

    def _temporary(self, name: str) -> Path:
        return self.folder / f".{name}.{uuid.uuid4().hex}"

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def names(self, after: str = "") -> Sequence[str]:
        """See `Store.names`; reads the folder only if its time stamp has changed."""
        try:
            changed = self.folder.stat().st_mtime_ns
            if self._listed is not None and self._listed[0] == changed:
                found = self._listed[1]
            else:
                found = [path.name for path in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        settled = time.time_ns() - changed > STAMP_NS
        self._listed = (changed, found) if settled else None
        return [name for name in found if name > after]

    def delete(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def written_at(self, name: str) -> float:
        return (self.folder / name).stat().st_mtime

    def below(self, folder: str) -> PosixStore:
        return PosixStore(self.folder / folder, inner=True)

    def refused(self, setting: str) -> AbstractContextManager[None]:
        return refuse_wrong_place(setting, self.folder)


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Removes temporary files of dead writers, whose names match a pattern.

    A young file stays, because another driver may be about to link it.
    """
    for leftover in folder.glob(pattern):
        with suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_S:
                leftover.unlink()


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
