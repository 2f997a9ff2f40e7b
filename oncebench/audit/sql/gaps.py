"""The losses that an operator has accepted, as tables for SQL.

Promise: no code is shared with the Python auditor. A text is a list of parts with commas between them; a part is
`input/PARTITION:FIRST..LAST`, `output/PARTITION:THERE..WRITTEN`, or names another input or output as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

_BATCHES = pa.schema([("batch", pa.int64())])
_OFFSETS = pa.schema([(name, pa.int64()) for name in ("partition", "first", "last")])


def accepted_batches(progress: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Returns the batches whose rows may be missing from the output."""
    found: set[int] = set()
    done = 0  # batches so far
    for line in progress:
        if line["kind"] == "batch":
            done = max(done, line["batch"] + 1)
        for place, part, was, now in _parts(line):
            if place == "output" and (part.isdecimal() or part == "all"):
                found.update(range(int(was) + 1 if was.isdecimal() else 0, int(now) + 1))
            elif place == "output":
                found.update(range(done))
    return pa.Table.from_pylist([{"batch": batch} for batch in found], _BATCHES)


def accepted_offsets(progress: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Returns (partition, first, last) of the input records that may be missing."""
    rows = [
        {"partition": int(part), "first": int(first), "last": int(last)}
        for line in progress
        for place, part, first, last in _parts(line)
        if place == "input" and part.isdecimal()
    ]
    return pa.Table.from_pylist(rows, _OFFSETS)


def _parts(line: Mapping[str, Any]) -> Iterable[tuple[str, str, str, str]]:
    """Yields (place, part, left, right) of each part of a line's text."""
    for text in line["text"].split(",") if line["kind"] == "gap" else ():
        place, _, rest = text.partition("/")
        part, _, change = rest.partition(":")
        left, _, right = change.partition("..")
        yield place, part, left, right
