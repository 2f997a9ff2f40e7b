"""The disk model: which effects of the calls so far may survive a power cut.

Promise: `power_cuts` gives every state that these rules allow, each at least once:

* Bytes that were written and not forced by fsync of the file: none of them, the first half, all as zeros, the second
  half after zeros (the later block arrived, the earlier one did not), or all.
* A name that was created, removed or changed and not forced by fsync of its folder: the old or the new state. Each such
  name is independent of the others and of their order.
* A rename is atomic: the file always has one of the two names. It may have both (the new name is on the disk, the old
  one is not removed yet) until the old name's folder is forced.
* If a folder's own name is missing on the disk, everything below it is missing too.

`docs/crash_states.md` has the sources of these rules and what they leave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from proofs.crash_states.calls import (
    FOLDER,
    Call,
    Create,
    Link,
    MakeFolder,
    Put,
    Rename,
    SyncFile,
    SyncFolder,
    Unlink,
    Write,
)

# A name and its new meaning: a file, FOLDER, or None for no file.
Change = tuple[str, int | None]


@dataclass(frozen=True)
class Content:
    """The content of a file: the forced bytes, and the later writes in order."""

    forced: bytes = b""
    writes: tuple[tuple[int, bytes], ...] = ()

    def whole(self) -> bytes:
        """The content that a running machine shows."""
        content = bytearray(self.forced)
        for offset, data in self.writes:
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data
        return bytes(content)

    def cuts(self) -> tuple[bytes, ...]:
        """The contents that a power cut may leave."""
        whole, known = self.whole(), len(self.forced)
        middle = known + (len(whole) - known + 1) // 2
        torn = (
            self.forced,
            whole[:middle],
            self.forced + bytes(len(whole) - known),
            self.forced + bytes(middle - known) + whole[middle:],
        )
        return tuple(dict.fromkeys((*torn, whole))) if self.writes else (whole,)


@dataclass(frozen=True)
class Tree:
    """A tree of files and folders: the file or folder of each path, and each file's content."""

    names: frozenset[tuple[str, int]]
    contents: frozenset[tuple[int, bytes]]


@dataclass(frozen=True)
class Disk:
    """The state that is certainly on the disk, and the state that may be.

    Attributes:
        names: forced names, as (path, file or FOLDER).
        waiting: calls that changed names and were not forced. A prefix of each call's changes may be on the disk. Calls
            with a common name stand together, oldest first. Independent calls have a fixed order, so that two orders
            of the same calls give equal disks.
        files: (file, content).
    """

    names: frozenset[tuple[str, int]] = frozenset()
    waiting: tuple[tuple[Change, ...], ...] = ()
    files: frozenset[tuple[int, Content]] = frozenset()


def settled(tree: Tree) -> Disk:
    """The disk on which the whole tree is forced."""
    return Disk(tree.names, (), frozenset((file, Content(data)) for file, data in tree.contents))


def after(disk: Disk, call: Call) -> Disk:
    """The disk after a call."""
    match call:
        case Create():
            return _changed(_filled(disk, call.file, Content()), (call.path, call.file))
        case Write():
            before = dict(disk.files)[call.file]
            return _filled(disk, call.file, replace(before, writes=(*before.writes, (call.offset, call.data))))
        case SyncFile():
            return _filled(disk, call.file, Content(dict(disk.files)[call.file].whole()))
        case SyncFolder():
            return _forced(disk, call.path)
        case Link():
            return _changed(disk, (call.path, call.file))
        case Rename():
            return _changed(disk, (call.target, call.file), (call.source, None))
        case Unlink():
            return _changed(disk, (call.path, None))
        case MakeFolder():
            return _changed(disk, (call.path, FOLDER))
        case Put():
            there = _filled(disk, call.file, Content(call.data))
            if call.forced:
                return replace(there, names=there.names | {(call.path, call.file)} | _above(call.path))
            return _changed(there, (call.path, call.file))


def everything(disk: Disk) -> Tree:
    """The tree that a running machine shows, with the effect of every call."""
    names = dict(disk.names)
    for path, what in (change for changes in disk.waiting for change in changes):
        _change(names, path, what)
    names = _reachable(names)
    used = set(names.values())
    return Tree(
        frozenset(names.items()),
        frozenset((file, content.whole()) for file, content in disk.files if file in used),
    )


def power_cuts(disk: Disk) -> Iterator[Tree]:
    """Every tree that a power cut at this moment may leave."""
    cuts = {file: content.cuts() for file, content in disk.files}
    known = dict(disk.names)
    for outcomes in product(*(_outcomes(known, together) for together in _together(disk.waiting))):
        names = dict(known)
        for path, what in (change for outcome in outcomes for change in outcome):
            _change(names, path, what)
        names = _reachable(names)
        used = sorted({file for file in names.values() if file != FOLDER})
        there = frozenset(names.items())
        for contents in product(*(cuts[file] for file in used)):
            yield Tree(there, frozenset(zip(used, contents, strict=True)))


def folder_of(path: str) -> str:
    """The folder that holds a name."""
    return path.rpartition("/")[0]


def _outcomes(known: Mapping[str, int], together: Sequence[tuple[Change, ...]]) -> list[tuple[Change, ...]]:
    """The possible meanings of the names that some calls changed, always in the same order."""
    touched = sorted({path for changes in together for path, _ in changes})
    found = set()
    for chosen in product(*(range(len(changes) + 1) for changes in together)):
        names = {path: known[path] for path in touched if path in known}
        for changes, number in zip(together, chosen, strict=True):
            for path, what in changes[:number]:
                _change(names, path, what)
        found.add(tuple((path, names.get(path)) for path in touched))
    return sorted(found, key=str)


def _together(waiting: Sequence[tuple[Change, ...]]) -> list[list[tuple[Change, ...]]]:
    """Groups of calls without common names; calls keep their order, groups are sorted by name."""
    groups: list[tuple[set[str], list[tuple[Change, ...]]]] = []
    for changes in waiting:
        names, calls = {path for path, _ in changes}, [changes]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, calls = names | group[0], [*group[1], *calls]
        groups.append((names, calls))
    return [calls for _, calls in sorted(groups, key=lambda group: min(group[0]))]


def _change(names: dict[str, int], path: str, what: int | None) -> None:
    if what is None:
        names.pop(path, None)
    else:
        names[path] = what


def _above(path: str) -> set[tuple[str, int]]:
    above = folder_of(path)
    return {(above, FOLDER)} | _above(above) if above else set()


def _reachable(names: Mapping[str, int]) -> dict[str, int]:
    """The names without those below a missing folder."""
    found = {"": FOLDER}
    for path in sorted(names):
        if found.get(folder_of(path)) == FOLDER:
            found[path] = names[path]
    del found[""]
    return found


def _filled(disk: Disk, file: int, content: Content) -> Disk:
    return replace(disk, files=frozenset(({**dict(disk.files), file: content}).items()))


def _changed(disk: Disk, *changes: Change) -> Disk:
    ordered = (call for together in _together((*disk.waiting, changes)) for call in together)
    return replace(disk, waiting=tuple(ordered))


def _forced(disk: Disk, folder: str) -> Disk:
    """Forces the names in a folder.

    If a rename's old name is certainly gone, the whole rename is on the disk, because it is atomic.
    """
    names: dict[str, int] = dict(disk.names)
    waiting = []
    for changes in disk.waiting:
        here = [number for number, (path, _) in enumerate(changes) if folder_of(path) == folder]
        certain = max(here, default=-1) + 1
        for path, what in changes[:certain]:
            _change(names, path, what)
        if changes[certain:]:
            waiting.append(changes[certain:])
    return Disk(frozenset(names.items()), tuple(waiting), disk.files)
