"""Records as columns: pieces of a table, numbers of values, and contents without joining pieces."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from oncebench.audit.python import records
from oncebench.audit.python.records import (
    Numbers,
    by_appearance,
    by_size,
    contents,
    in_position_order,
    keep,
    pieces,
    same,
    sizes,
    unpack,
)

VALUES = [b"value %d" % number for number in range(6)]
TABLE = pa.table({"key": pa.array([b"k"] * 6, pa.binary()), "value": pa.array(VALUES, pa.binary())})
SIZE = TABLE.to_batches()[0].nbytes
COLUMN = pa.chunked_array([[b"abc", None], [], [b"", b"x"]], pa.binary())


def test_of_several_rows_at_one_position_the_first_one_counts() -> None:
    offset = [7 * row % 5 for row in range(200)]
    position, rows = in_position_order(pa.table({"partition": [1] * 200, "offset": offset}))
    assert [unpack(each) for each in position.tolist()] == [(1, offset) for offset in range(5)]
    assert rows.tolist() == [offset.index(each) for each in range(5)]


def bounds(rows: int) -> list[tuple[int, int]]:
    found = list(pieces(TABLE, rows, keep))
    assert pa.Table.from_batches([piece for _, piece in found]).equals(TABLE)
    return [(where.start, where.stop) for where, _ in found]


def test_a_piece_has_at_most_so_many_rows() -> None:
    assert bounds(6) == [(0, 6)]
    assert bounds(4) == [(0, 4), (4, 6)]


def test_a_piece_has_at_most_so_many_bytes_or_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, places in (
        (SIZE, [(0, 6)]),
        (SIZE - 1, [(0, 3), (3, 6)]),
        (1, [(at, at + 1) for at in range(6)]),
    ):
        monkeypatch.setattr(records, "PIECE_BYTES", most)
        assert bounds(100) == places, most


@pytest.mark.parametrize(("more", "after"), [(0, [2, 4, 6]), (1, [3, 6])])
def test_pages_are_given_back_whenever_so_many_bytes_were_read(
    more: int, after: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_row = TABLE.slice(0, 1).to_batches()[0].nbytes
    monkeypatch.setattr(records, "MAPPED_BYTES", 2 * one_row + more)
    read: list[slice] = []
    given_back: list[int] = []
    for where, _ in pieces(TABLE, 1, lambda: given_back.append(len(read))):
        read.append(where)
    assert given_back == after


@pytest.mark.parametrize(
    ("size", "runs"),
    [
        ([4, 4, 4, 4], [(0, 2), (2, 4)]),
        ([9, 1, 10], [(0, 1), (1, 2), (2, 3)]),
        ([25, 1, 1], [(0, 3)]),
        ([1], [(0, 1)]),
        ([], [(0, 0)]),
    ],
)
def test_a_run_of_records_has_so_many_bytes_or_one_record_more(
    size: list[int], runs: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PIECE_BYTES", 10)
    assert [(run.start, run.stop) for run in by_size(np.array(size, np.int64))] == runs


def test_contents_and_sizes_come_in_the_order_of_the_rows() -> None:
    rows = np.array([3, 0, 1, 0, 2])
    assert contents(COLUMN, rows).to_pylist() == [b"x", b"abc", None, b"abc", b""]
    assert (sizes(COLUMN, rows).tolist(), sizes(COLUMN, rows).dtype) == ([1, 3, 0, 3, 0], np.int64)
    assert (contents(COLUMN, rows[:0]).to_pylist(), sizes(COLUMN, rows[:0]).tolist()) == ([], [])


def test_contents_are_the_same_byte_for_byte_and_null_is_the_same_as_null_only() -> None:
    pairs = [(b"a", b"a"), (None, None), (b"", b""), (b"a", b"b"), (None, b"a"), (b"a", None), (None, b""), (b"", None)]
    left, right = (pa.array(values, pa.binary()) for values in zip(*pairs, strict=True))
    assert same(left, right).tolist() == [True] * 3 + [False] * 5


def test_values_keep_their_numbers_from_piece_to_piece_and_null_has_none() -> None:
    numbers = Numbers()
    found = [numbers.of(pa.array(piece, pa.binary())) for piece in ([b"b", None, b"a"], [], [b"c", b"a", None])]
    assert [piece.tolist() for piece in found] == [[0, -1, 1], [], [2, 1, -1]]
    assert (numbers.values(), {piece.dtype for piece in found}) == ([b"b", b"a", b"c"], {np.dtype(np.int64)})


def test_numbers_that_appear_come_in_the_order_of_their_first_appearance() -> None:
    assert by_appearance(np.array([2, -1, 0, 2, 3, 0]), 5).tolist() == [2, 0, 3]
    assert by_appearance(np.array([-1, -1]), 3).tolist() == []
    assert by_appearance(np.array([], np.int64), 0).tolist() == []
