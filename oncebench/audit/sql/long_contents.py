"""Keeps long keys and values out of SQL.

DuckDB looks at the beginnings of 2,048 values at a time, and so maps more of a file than memory may hold.

Promise: SQL gets a long key or value as null, with its length, and where two reads are compared with its digest. The
other values are those of the file, without a copy. Bytes of long records are read one record after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# No event with a longer key is valid, and no shorter key is hidden: sessions are known by their keys.
KEY_BYTES = 65_536
# Longer than a row, and than the values of an unfinished session.
VALUE_BYTES = 4_096
# Of the files' pages that stay in memory. The auditors share no code, and no constant either.
MAPPED_BYTES = 40_000_000


def hidden(table: pa.Table, release: Callable[[], None], *, with_sums: bool) -> pa.Table:
    """Returns a stream's table with `key_size` and `value_size`, without long keys and values.

    Args:
        release: gives back the memory of the files' pages.
        with_sums: also adds `key_sum` and `value_sum`. All added columns are null where nothing is hidden.
    """
    for name, limit in (("key", KEY_BYTES), ("value", VALUE_BYTES)):
        shown, sizes, sums = _Column(table[name].type), _Column(pa.int64()), _Column(pa.string())
        for chunk in table[name].chunks:
            lengths = pc.binary_length(chunk)
            long = pc.fill_null(pc.greater(lengths, limit), False)
            if not pc.any(long).as_py():
                shown.append(chunk)
                sizes.skip(len(chunk))
                sums.skip(len(chunk))
                continue
            shown.append(_without(chunk, long))
            sizes.append(pc.if_else(long, lengths, None).cast(pa.int64()))
            sums.append(_digests(chunk, long, release) if with_sums else pa.nulls(len(chunk), pa.string()))
        table = table.set_column(table.schema.get_field_index(name), name, shown.array())
        table = table.append_column(f"{name}_size", sizes.array())
        table = table.append_column(f"{name}_sum", sums.array()) if with_sums else table
    return table


class _Column:
    """A column that is made chunk by chunk; its chunks without a value share memory."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind, self._chunks, self._nulls = kind, list[pa.Array](), pa.nulls(0, kind)

    def append(self, chunk: pa.Array) -> None:
        self._chunks.append(chunk)

    def skip(self, rows: int) -> None:
        if rows > len(self._nulls):
            self._nulls = pa.nulls(rows, self._kind)
        self._chunks.append(self._nulls.slice(0, rows))

    def array(self) -> pa.ChunkedArray:
        return pa.chunked_array(self._chunks, self._kind)


def _without(chunk: pa.Array, long: pa.BooleanArray) -> pa.Array:
    """Returns the chunk, whose long values are null; the bytes stay where they are."""
    shown = pc.and_not(chunk.is_valid(), long).to_numpy(zero_copy_only=False)
    _, offsets, data = chunk.buffers()
    bits = pa.array(np.concatenate([np.zeros(chunk.offset, dtype=bool), shown])).buffers()[1]
    return pa.Array.from_buffers(chunk.type, len(chunk), [bits, offsets, data], offset=chunk.offset)


def _digests(chunk: pa.Array, long: pa.BooleanArray, release: Callable[[], None]) -> pa.Array:
    found: list[str | None] = [None] * len(chunk)
    read = 0
    for at in np.flatnonzero(long.to_numpy(zero_copy_only=False)).tolist():
        content = chunk[at].as_buffer()
        found[at] = hashlib.sha256(content).hexdigest()
        read += len(content)
        if read > MAPPED_BYTES:
            release()
            read = 0
    release()
    return pa.array(found, pa.string())


def changed(source: pa.Table, copies: pa.Table, pairs: pa.Table, release: Callable[[], None]) -> pa.Table:
    """Returns `pos` of each copy that differs from its original.

    A copy has the original's bytes, or, where its length shows that it was cut, the beginning of these bytes.

    Args:
        source, copies: the input and the quarantine.
        pairs: the row numbers of originals (`original`) and copies (`copy`), and the originals' `pos`.
    """
    names = ("key", "value")
    originals, copied = ([_Values(table[name]) for name in names] for table in (source, copies))
    wholes = [copies[f"{name}_bytes"].to_pylist() for name in names]
    found, read = [], 0
    for pos, original, copy in zip(*(pairs[name].to_pylist() for name in ("pos", "original", "copy")), strict=True):
        for of_source, of_copies, whole in zip(originals, copied, wholes, strict=True):
            there, here = of_source.at(original), of_copies.at(copy)
            read += len(there or b"") + len(here or b"")
            if not _is_copy(there, here, whole[copy]):
                found.append(pos)
                break
        if read > MAPPED_BYTES:
            release()
            read = 0
    return pa.table({"pos": pa.array(found, pa.int64())})


def _is_copy(original: bytes | None, copy: bytes | None, whole: int | None) -> bool:
    if whole is None:
        return original == copy
    if original is None or copy is None:
        return False
    return len(copy) < whole == len(original) and original.startswith(copy)


class _Values:
    """The values of a binary column by row number.

    Rows that are read one after the other are near each other.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._chunks = column.chunks
        self._starts = np.array([0, *accumulate(map(len, self._chunks))])

    def at(self, row: int) -> bytes | None:
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        found: bytes | None = self._chunks[number][row - int(self._starts[number])].as_py()
        return found
