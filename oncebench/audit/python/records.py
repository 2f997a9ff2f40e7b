"""Keeps records of a topic as columns: positions in order, keys by number, contents.

Promise: nothing here joins the pieces of a column, because the contents of a topic do not fit into memory twice. A
position is a partition and an offset, packed into one sortable integer.
"""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oncebench.record.validation import RecordError

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
OFFSET_BITS = 44  # 17 million million offsets
PARTITION_BITS = 63 - OFFSET_BITS


def keep() -> None:
    """Releases nothing: a table in memory stays there."""


def position_of(partition: npt.NDArray[np.integer], offset: Ints) -> Ints:
    """Packs (partition, offset) into a sortable integer; `RecordError` if impossible."""
    for name, numbers, bits in (("partition", partition, PARTITION_BITS), ("offset", offset, OFFSET_BITS)):
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= 1 << bits):
            impossible = numbers[(numbers < 0) | (numbers >= 1 << bits)]
            raise RecordError(
                f"the record has a row at {name} {impossible[0]}, which must be 0 to 2**{bits} - 1. The record is "
                "damaged: take the folder from a sound copy, or run the cell again"
            )
    packed = partition.astype(np.int64)
    packed <<= OFFSET_BITS
    packed |= offset
    return packed


def unpack(position: int) -> tuple[int, int]:
    """Returns the (partition, offset) of a packed position."""
    return position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1)


def partitions_of(position: Ints) -> Ints:
    """Returns the partition of each packed position."""
    return position >> OFFSET_BITS


def offsets_of(position: Ints) -> Ints:
    """Returns the offset of each packed position."""
    return position & ((1 << OFFSET_BITS) - 1)


def positions_in(table: pa.Table) -> Ints:
    """Returns the packed position of each row; the columns are `partition` and `offset`."""
    return position_of(table["partition"].to_numpy(), table["offset"].to_numpy())


def in_position_order(table: pa.Table) -> tuple[Ints, Ints]:
    """Returns ascending packed positions, each one once, and their rows in `table`.

    Of two rows at one position the first one counts.
    """
    position = positions_in(table)
    order = np.argsort(position, kind="stable")
    position = position[order]
    new = np.ones(len(order), dtype=bool)
    np.not_equal(position[1:], position[:-1], out=new[1:])
    return (position, order) if new.all() else (position[new], order[new])


class Numbers:
    """Numbers different values from 0 on, piece by piece.

    A column as a whole would hold a dictionary per piece while Arrow encodes it.
    """

    def __init__(self) -> None:
        self._number: dict[Any, int] = {}

    def of(self, piece: pa.Array) -> Ints:
        """Returns the number of each value; -1 for null."""
        coded = piece.dictionary_encode()
        different = [self._number.setdefault(value, len(self._number)) for value in coded.dictionary.to_pylist()]
        numbers: Ints = np.array([*different, -1], dtype=np.int64)[coded.indices.fill_null(-1).to_numpy()]
        return numbers

    def values(self, first: int = 0) -> list[Any]:
        """Returns the values by number, from number `first` on."""
        newest = islice(reversed(self._number), len(self._number) - first)
        return list(newest)[::-1]


def by_appearance(code: npt.NDArray[np.integer], size: int) -> Ints:
    """Returns the numbers in `code` in the order in which they first appear.

    Args:
        code: numbers from 0 to size - 1, or -1 for none.
        size: how many numbers are possible.
    """
    appears = np.full(size + 1, len(code), dtype=np.int64)
    appears[code[::-1]] = np.arange(len(code))[::-1]  # the last assignment counts: the first appearance
    appears[-1] = len(code)
    return np.argsort(appears, kind="stable")[: int((appears < len(code)).sum())]


def contents(column: pa.ChunkedArray, rows: Ints) -> pa.Array:
    """Returns the values of a binary column at these rows, in their order.

    `ChunkedArray.take` would first join all pieces.
    """
    ends = np.cumsum([len(chunk) for chunk in column.chunks], dtype=np.int64)
    piece = np.searchsorted(ends, rows, side="right")
    by_piece = np.argsort(piece, kind="stable")
    piece, rows = piece[by_piece], rows[by_piece]
    taken = [pa.array([], pa.large_binary())]
    numbers, starts = np.unique(piece, return_index=True)
    for number, (first, last) in zip(numbers.tolist(), pairwise([*starts.tolist(), len(rows)]), strict=True):
        chunk = column.chunk(number)
        inside = rows[first:last] - (ends[number] - len(chunk))
        taken.append(chunk.take(pa.array(inside)).cast(pa.large_binary()))
    back = np.empty(len(rows), np.int64)
    back[by_piece] = np.arange(len(rows))
    return pa.concat_arrays(taken).take(pa.array(back))


def same(left: pa.Array, right: pa.Array) -> Bools:
    """Compares byte for byte; null equals null only."""
    equal = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(pc.is_null(left), pc.is_null(right)))
    found: Bools = equal.to_numpy(zero_copy_only=False)
    return found
