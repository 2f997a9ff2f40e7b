"""Reads a tree of files from a real folder, or builds it there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from proofs.crash_states.calls import FOLDER
from proofs.crash_states.disk import Tree


def tree_of(root: Path) -> Tree:
    """The tree in a folder; two names of one file are recognised."""
    names: dict[str, int] = {}
    contents: dict[int, bytes] = {}
    numbers: dict[int, int] = {}
    left = [""]
    while left:
        above = left.pop()
        with os.scandir(root / above) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = f"{above}/{entry.name}" if above else entry.name
                if entry.is_dir(follow_symlinks=False):
                    names[path] = FOLDER
                    left.append(path)
                    continue
                number = numbers.setdefault(entry.inode(), len(numbers))
                names[path] = number
                contents[number] = Path(entry.path).read_bytes()
    return Tree(frozenset(names.items()), frozenset(contents.items()))


def build(tree: Tree, root: Path) -> None:
    """Builds a tree in a folder, after deleting what is there."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    contents = dict(tree.contents)
    first: dict[int, Path] = {}
    for path, file in sorted(tree.names):
        place = root / path
        if file == FOLDER:
            place.mkdir()
        elif file in first:
            place.hardlink_to(first[file])
        else:
            place.write_bytes(contents[file])
            first[file] = place
