"""An order-free digest of rows: equal for equal multisets of rows, whatever their order and batching.

Promise: two runs of a batch that make the same rows in a partition give the same (rows, digest); a row that is
missing, added or changed changes the digest but for a chance of 2**-64. It stands with the marker or the decision,
so that a replay that makes other rows is found out (SPARK-28650: the same partition and epoch may hold other rows).
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.rows import STRING, TYPES

# Odd 64-bit constants of splitmix64 (Steele, Lea, Flood 2014), for mixing one column into the next.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_WORD = 2**64


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def _hashes(texts: pa.Array) -> npt.NDArray[np.uint64]:
    encoded = texts.dictionary_encode()
    raw = [text.encode("utf-8") for text in encoded.dictionary.to_pylist()]
    # Two CRCs with different starts make 64 bits; the digest guards against accidents, not against forgery.
    hashes = np.array([zlib.crc32(text) << 32 | zlib.crc32(text, 0x5BD1E995) for text in raw], dtype=np.uint64)
    chosen: npt.NDArray[np.uint64] = np.take(hashes, encoded.indices.to_numpy(zero_copy_only=False))
    return chosen


def _words(numbers: pa.Array) -> npt.NDArray[np.uint64]:
    words: npt.NDArray[np.uint64] = numbers.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return words


def digest(rows: pa.RecordBatch) -> int:
    """Digest of a record batch (its columns: `rows.TYPES`); add them modulo 2**64."""
    if rows.num_rows == 0:
        return 0
    with np.errstate(over="ignore"):
        state = np.zeros(rows.num_rows, dtype=np.uint64)
        for name, kind in TYPES.items():
            column = rows.column(name)
            words = _hashes(column) if kind == STRING else _words(column)
            state = _mix((state ^ words) + _GAMMA)
        return int(np.add.reduce(state))


def add(left: int, right: int) -> int:
    """The digest of two multisets together."""
    return (left + right) % _WORD
