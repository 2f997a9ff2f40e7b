"""Keeps records of a topic as columns: positions in order, keys by number, contents.

Promise: nothing here joins the pieces of a column, because the contents of a topic do not fit into memory twice. A
piece has at most `PIECE_BYTES`, or one record. So memory does not grow with the length of records. A position is a
partition and an offset, packed into one sortable integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oncebench.record.streams import MAPPED_BYTES
from oncebench.record.validation import RecordError

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
OFFSET_BITS = 44  # 17 million million offsets
PARTITION_BITS = 63 - OFFSET_BITS
PIECE_BYTES = 4_000_000  # of keys and values that are copied at a time
# Values that become Python objects at a time, if they are short; with many more, garbage collection takes most of the
# time.
PIECE_ROWS = 1_024


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


def pieces(table: pa.Table, rows: int, release: Callable[[], None]) -> Iterator[tuple[slice, pa.RecordBatch]]:
    """Yields the table piece by piece, each with its rows' numbers in the table.

    A piece has at most `rows` rows and PIECE_BYTES, or one row. `release` gives back the memory of pages that were
    read; it is called every MAPPED_BYTES.
    """
    first = read = 0
    for batch in table.to_batches(max_chunksize=rows):
        for piece in _halves(batch):
            yield slice(first, first + piece.num_rows), piece
            first += piece.num_rows
            read += piece.nbytes
            if read >= MAPPED_BYTES:
                release()
                read = 0


def _halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= PIECE_BYTES or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halves(batch.slice(0, middle))
    yield from _halves(batch.slice(middle))


class Numbers:
    """Numbers different values from 0 on, piece by piece.

    A column as a whole would hold a dictionary per piece while Arrow encodes it.
    """

    def __init__(self) -> None:
        self._number: dict[Any, int] = {}

    def of(self, piece: pa.Array) -> Ints:
        """Returns the number of each value; -1 for null."""
        coded = piece if pa.types.is_dictionary(piece.type) else piece.dictionary_encode()
        different = [self._number.setdefault(value, len(self._number)) for value in coded.dictionary.to_pylist()]
        numbers: Ints = np.array([*different, -1], dtype=np.int64)[coded.indices.fill_null(-1).to_numpy()]
        return numbers

    def values(self) -> list[Any]:
        """Returns the values by number."""
        return list(self._number)


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
    order, found = _by_chunk(column, rows)
    taken = [chunk.take(pa.array(inside)).cast(pa.large_binary()) for chunk, inside in found]
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return pa.concat_arrays([pa.array([], pa.large_binary()), *taken]).take(pa.array(back))


def sizes(column: pa.ChunkedArray, rows: Ints) -> Ints:
    """Returns the lengths of the values at these rows, in bytes; 0 for null.

    The values are not read.
    """
    order, found = _by_chunk(column, rows)
    size = np.zeros(len(rows), np.int64)
    lengths = [pc.fill_null(pc.binary_length(chunk), 0).to_numpy()[inside] for chunk, inside in found]
    size[order] = np.concatenate([size[:0], *lengths])
    return size


def by_size(size: Ints) -> Iterator[slice]:
    """Yields runs of records with these sizes: PIECE_BYTES each, or one record more."""
    piece = np.cumsum(size) // PIECE_BYTES
    for first, last in pairwise([0, *(np.flatnonzero(np.diff(piece)) + 1).tolist(), len(size)]):
        yield slice(first, last)


def _by_chunk(column: pa.ChunkedArray, rows: Ints) -> tuple[Ints, list[tuple[pa.Array, Ints]]]:
    """Returns the order of these rows by chunk, and each chunk with its rows.

    The rows are numbered within their chunk.
    """
    ends = np.cumsum([len(chunk) for chunk in column.chunks], dtype=np.int64)
    number = np.searchsorted(ends, rows, side="right")
    order = np.argsort(number, kind="stable")
    number, rows = number[order], rows[order]
    numbers, starts = np.unique(number, return_index=True)
    found = []
    for at, (first, last) in zip(numbers.tolist(), pairwise([*starts.tolist(), len(rows)]), strict=True):
        chunk = column.chunk(at)
        found.append((chunk, rows[first:last] - (ends[at] - len(chunk))))
    return order, found


def same(left: pa.Array, right: pa.Array) -> Bools:
    """Compares byte for byte; null equals null only."""
    equal = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(pc.is_null(left), pc.is_null(right)))
    found: Bools = equal.to_numpy(zero_copy_only=False)
    return found
