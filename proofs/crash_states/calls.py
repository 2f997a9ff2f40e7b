"""What a driver and its tasks ask of the file system, as plain values: what is recorded, edited and replayed.

Paths are relative to the recorded folder, with `/`; a file is a number, so that it stays itself under every name.
"""

from __future__ import annotations

from dataclasses import dataclass

# What a name stands for when it is no file's.
FOLDER = -1
DRIVER = "driver"


@dataclass(frozen=True)
class Create:
    """A new, empty file under a name."""

    path: str
    file: int


@dataclass(frozen=True)
class Write:
    """Bytes into a file."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class SyncFile:
    """fsync of a file: its content is on the disk; its name need not be."""

    file: int


@dataclass(frozen=True)
class SyncFolder:
    """fsync of a folder: the names in it are on the disk, and nothing else."""

    path: str


@dataclass(frozen=True)
class Link:
    """One more name for a file."""

    path: str
    file: int


@dataclass(frozen=True)
class Rename:
    """Another name for a file, in place of the first and of whatever had that name."""

    source: str
    target: str
    file: int


@dataclass(frozen=True)
class Unlink:
    """A name is taken away."""

    path: str


@dataclass(frozen=True)
class MakeFolder:
    """A new, empty folder under a name."""

    path: str


@dataclass(frozen=True)
class Put:
    """An entry of Spark's logs: there as a whole or not at all; `forced`: it is on the disk."""

    path: str
    file: int
    data: bytes
    forced: bool


Call = Create | Write | SyncFile | SyncFolder | Link | Rename | Unlink | MakeFolder | Put


@dataclass(frozen=True)
class Recorded:
    """A call, and who made it: the driver or one of the tasks that run beside each other."""

    actor: str
    call: Call


def told(recorded: Recorded) -> str:
    """A call in a line."""
    call = recorded.call
    match call:
        case Write():
            what = f"file {call.file}, {len(call.data)} bytes at {call.offset}"
        case Rename():
            what = f"{call.source} -> {call.target}"
        case SyncFile():
            what = f"file {call.file}"
        case Create() | Link() | Put():
            what = f"{call.path} (file {call.file})"
        case SyncFolder() | Unlink() | MakeFolder():
            what = call.path
    return f"{recorded.actor}: {type(call).__name__} {what}"
