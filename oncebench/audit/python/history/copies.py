"""The copies in quarantine, by the positions of their originals, without their bytes.

Promise: a copy is kept as digests and lengths, so memory does not grow with the size of records. A copy is that of an
original if its key and value are the original's. A part that was cut names the original's length, and is its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from oncebench.audit.python.records import Ints, by_size, contents, in_position_order, sizes
from oncebench.record.streams import Stream

_DIGEST_BYTES = 16


class Part(NamedTuple):
    """The key or the value of a copy: length, digest, and the original's length if it was cut."""

    size: int | None
    digest: bytes | None
    whole_size: int | None

    @staticmethod
    def of(copied: bytes | None, whole_size: int | None) -> Part:
        """Digests a key or a value; None for null."""
        return Part(None if copied is None else len(copied), digest(copied), whole_size)

    def is_of(self, original: bytes | None) -> bool:
        """Whether this is the original, or its beginning."""
        if self.whole_size is None:
            return self.digest == digest(original)
        if original is None or self.size is None:
            return False
        return self.size < self.whole_size == len(original) and self.digest == digest(original[: self.size])


Copy = tuple[Part, Part]


def digest(content: bytes | None) -> bytes | None:
    """Returns a digest that no two different contents share by accident; None for null."""
    return None if content is None else blake2b(content, digest_size=_DIGEST_BYTES).digest()


def changed(copies: Mapping[int, set[Copy]], positions: Sequence[int], source: Stream) -> list[int]:
    """Returns the positions where a copy differs from the input record; every record exists."""
    return [
        position
        for position, key, value in _records_at(source, positions)
        if not all(of_key.is_of(key) and of_value.is_of(value) for of_key, of_value in copies[position])
    ]


def _records_at(source: Stream, positions: Sequence[int]) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    if not positions:
        return
    position, order = in_position_order(source.table)
    rows: Ints = order[np.searchsorted(position, positions)]
    columns = [source.table[name] for name in ("key", "value")]
    for some in by_size(sum((sizes(column, rows) for column in columns), start=np.zeros(len(rows), np.int64))):
        keys, values = (contents(column, rows[some]).to_pylist() for column in columns)
        yield from zip(positions[some], keys, values, strict=True)
        source.release()
