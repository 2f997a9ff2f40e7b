"""The files of the generators and of the observers of a run, of which there may be several."""

from __future__ import annotations


def numbered(name: str, count: int) -> tuple[str, ...]:
    """The names of a file or folder that each of `count` processes has.

    They are `x.json` for one process, else `x-1.json`, `x-2.json`, ...
    """
    stem, dot, suffix = name.partition(".")
    return (name,) if count == 1 else tuple(f"{stem}-{number}{dot}{suffix}" for number in range(1, count + 1))
