"""Records the file system calls of real classes, and can kill them at any call.

Promise: the record is complete, or recording fails. After every call the real folder is compared, name by name and byte
by byte, with the effect of the calls so far. So a change by other means (an unwatched function, C code, another
process) is found at the next call or at the end. fsync leaves nothing to compare. A missed fsync would make the search
stricter, never weaker, and `tests/proofs/test_crash_states.py` also compares with strace.

What can go wrong: Python's own functions are replaced for the whole process while recording, so only one recorder may
record at a time. Linux only: the path of an open file comes from /proc.
"""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from proofs.crash_states.calls import (
    DRIVER,
    FOLDER,
    Call,
    Create,
    Link,
    MakeFolder,
    Put,
    Recorded,
    Rename,
    SyncFile,
    SyncFolder,
    Unlink,
    Write,
)
from proofs.crash_states.disk import Disk, Tree, after, everything
from proofs.crash_states.folder import tree_of

_Result = TypeVar("_Result")
_READING = frozenset("rbt")
# Calls that would change the folder. No class of ours uses them; they must be modelled before one does.
_UNKNOWN = ("write", "pwrite", "writev", "fdatasync", "truncate", "ftruncate", "rmdir", "symlink", "mkfifo", "mknod")


class Killed(BaseException):
    """The driver was killed with all its tasks; no later call reaches the disk."""


class NotRecorded(Exception):
    """The folder has a change that is not in the record."""


class _Raw(io.FileIO):
    """A file whose writes are recorded."""

    def __init__(self, path: str, mode: str, write: Callable[[int, bytes, Callable[[], int]], int]) -> None:
        super().__init__(path, mode)
        self._write = write

    def write(self, data: Any, /) -> int:
        really = super().write
        return self._write(self.tell(), bytes(data), lambda: int(really(data)))


class Recorder:
    """Records the calls below a folder.

    Args:
        root: the folder.
        disk: the content of the folder at the start, and which part is forced.
    """

    def __init__(self, root: Path, disk: Disk) -> None:
        self.disk, self.log = disk, list[Recorded]()
        self.actor = DRIVER
        self._root = str(root)
        self._left: int | None = None
        self._dead = False
        self._compare()

    @contextmanager
    def listening(self, calls: int | None = None) -> Iterator[None]:
        """Records the calls of the `with` block; after `calls` of them, each raises `Killed`."""
        self._left, self._dead = calls, False
        replaced: dict[str, Callable[..., Any]] = {
            "open": self._os_open,
            "fsync": self._fsync,
            "link": self._link,
            "mkdir": self._mkdir,
            **dict.fromkeys(("rename", "replace"), self._rename),
            **dict.fromkeys(("unlink", "remove"), self._unlink),
        }
        with ExitStack() as stack:
            for name, function in replaced.items():
                stack.enter_context(mock.patch.object(os, name, _with(function, getattr(os, name))))
            for name in _UNKNOWN:
                stack.enter_context(mock.patch.object(os, name, _with(self._unknown, getattr(os, name))))
            for module in (builtins, io):
                stack.enter_context(mock.patch.object(module, "open", _with(self._open, io.open)))
            yield
        self._compare()

    def put(self, path: Path, data: bytes, forced: bool) -> None:
        """Writes an entry of Spark's logs, which exists whole or not at all."""
        self._do(Put(self._inside(path) or "", self._new_file(), data, forced), lambda: unrecorded(path, data))

    def _do(self, call: Call, really: Callable[[], _Result]) -> _Result:
        if self._dead or self._left == 0:
            self._dead = True
            raise Killed
        result = really()
        self._left = None if self._left is None else self._left - 1
        self.log.append(Recorded(self.actor, call))
        self.disk = after(self.disk, call)
        self._compare()
        return result

    def _compare(self) -> None:
        found, expected = tree_of(Path(self._root)), everything(self.disk)
        if _by_name(found) != _by_name(expected):
            differs = sorted(_by_name(found) ^ _by_name(expected), key=str)[:4]
            raise NotRecorded(f"{self._root} differs from the effect of its {len(self.log)} recorded calls: {differs}")

    def _inside(self, path: Any) -> str | None:
        """The recorded form of a path below the root; None for any other path."""
        if isinstance(path, int):
            path = _path_of(path)
        found = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  (follows no link: only names count)
        return found[len(self._root) + 1 :] if found.startswith(f"{self._root}/") else None

    def _file(self, path: str) -> int:
        return dict(everything(self.disk).names).get(path, FOLDER)

    def _new_file(self) -> int:
        return max((file for file, _ in self.disk.files), default=FOLDER) + 1

    # ---------------------------------------------------------------- replacements of Python's functions

    def _open(
        self, really: Callable[..., Any], file: Any, mode: str = "r", buffering: int = -1, *text: Any, **named: Any
    ) -> Any:
        path = None if isinstance(file, int) else self._inside(file)
        if path is None or set(mode) <= _READING:
            return really(file, mode, buffering, *text, **named)
        if mode.strip("bt") not in ("x", "w") or buffering != -1 or (self._file(path) != FOLDER and "x" not in mode):
            raise NotRecorded(f"open({path}, {mode}, {buffering}) is not modelled")
        number = self._new_file()

        def write(offset: int, data: bytes, writes: Callable[[], int]) -> int:
            return self._do(Write(number, offset, data), writes)

        raw = self._do(Create(path, number), lambda: _Raw(os.fspath(file), mode.strip("bt"), write))
        buffered = io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *text, **named)

    def _os_open(self, really: Callable[..., int], path: Any, flags: int, *args: Any, **named: Any) -> int:
        inside = self._inside(path)
        if inside is not None and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            raise NotRecorded(f"os.open({inside}, {flags}) is not modelled")
        return really(path, flags, *args, **named)

    def _fsync(self, really: Callable[[Any], None], handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        if _path_of(number) == self._root:
            return self._do(SyncFolder(""), lambda: really(handle))
        path = self._inside(number)
        if path is None:
            return really(handle)
        file = self._file(path)
        return self._do(SyncFolder(path) if file == FOLDER else SyncFile(file), lambda: really(handle))

    def _link(self, really: Callable[..., None], source: Any, target: Any, **named: Any) -> None:
        path, file = self._inside(target), self._file(self._inside(source) or "")
        if path is None:
            return really(source, target, **named)
        return self._do(Link(path, file), lambda: really(source, target, **named))

    def _rename(self, really: Callable[..., None], source: Any, target: Any) -> None:
        before, behind = self._inside(source), self._inside(target)
        if before is None or behind is None:
            return really(source, target)
        if self._file(before) in (FOLDER, self._file(behind)):  # rename(2) of a file to itself does nothing
            if self._file(before) == FOLDER and Path(source).exists():
                raise NotRecorded(f"a folder is renamed: {before}")
            return really(source, target)
        return self._do(Rename(before, behind, self._file(before)), lambda: really(source, target))

    def _unlink(self, really: Callable[..., None], path: Any, **named: Any) -> None:
        inside = self._inside(path)
        return really(path, **named) if inside is None else self._do(Unlink(inside), lambda: really(path, **named))

    def _mkdir(self, really: Callable[..., None], path: Any, *args: Any, **named: Any) -> None:
        inside = self._inside(path)
        if inside is None:
            return really(path, *args, **named)
        return self._do(MakeFolder(inside), lambda: really(path, *args, **named))

    def _unknown(self, really: Callable[..., Any], path: Any, *args: Any, **named: Any) -> Any:
        if self._inside(path) is not None:
            raise NotRecorded(f"{really.__name__}({self._inside(path)}) is not modelled")
        return really(path, *args, **named)


def _with(function: Callable[..., Any], really: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: function(really, *args, **named)


def _path_of(handle: int) -> str:
    return str(Path(f"/proc/self/fd/{handle}").readlink())


def unrecorded(path: Path, data: bytes, _forced: bool = True) -> None:
    """Writes an entry of Spark's logs without recording it."""
    with io.FileIO(path, "x") as file:
        file.write(data)


def _by_name(tree: Tree) -> set[tuple[str, Any]]:
    """Every name with its content and with the other names of the same file."""
    contents = dict(tree.contents)
    also: dict[int, list[str]] = {}
    for path, file in tree.names:
        also.setdefault(file, []).append(path)
    return {
        (path, None if file == FOLDER else (contents[file], tuple(sorted(also[file])))) for path, file in tree.names
    }
