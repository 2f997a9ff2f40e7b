"""The file system calls of a driver and its tasks, as values to record, edit and replay.

Paths are relative to the recorded folder and use `/`. A file is a number, which stays the same under every name.
"""

from __future__ import annotations

from dataclasses import dataclass

# The number that a folder's name stands for.
FOLDER = -1
DRIVER = "driver"


@dataclass(frozen=True)
class Create:
    """A new, empty file with a name."""

    path: str
    file: int


@dataclass(frozen=True)
class Write:
    """Bytes written into a file."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class SyncFile:
    """fsync of a file: its content is on the disk, its name perhaps not."""

    file: int


@dataclass(frozen=True)
class SyncFolder:
    """fsync of a folder: only the names in it are on the disk."""

    path: str


@dataclass(frozen=True)
class Link:
    """One more name for a file."""

    path: str
    file: int


@dataclass(frozen=True)
class Rename:
    """A new name for a file; it replaces the old name and any other file with the new name."""

    source: str
    target: str
    file: int


@dataclass(frozen=True)
class Unlink:
    """A name is removed."""

    path: str


@dataclass(frozen=True)
class MakeFolder:
    """A new, empty folder with a name."""

    path: str


@dataclass(frozen=True)
class Put:
    """An entry of Spark's logs, which exists whole or not at all; `forced`: it is on the disk."""

    path: str
    file: int
    data: bytes
    forced: bool


Call = Create | Write | SyncFile | SyncFolder | Link | Rename | Unlink | MakeFolder | Put


@dataclass(frozen=True)
class Recorded:
    """A call and its actor: the driver or one of the concurrent tasks."""

    actor: str
    call: Call


def describe(recorded: Recorded) -> str:
    """The text of a call in one line."""
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
