"""The digest tells multisets of rows apart and nothing else."""

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from oncebench.delivery import digest

SCHEMA = pa.schema(
    [("session_key", pa.string()), ("j", pa.int32()), ("events", pa.int32()), ("total", pa.int64()),
     ("checksum", pa.int64()), ("ended_at", pa.int64())]
)  # fmt: skip
NUMBERS = st.tuples(
    st.integers(0, 19), st.just(5), st.integers(0, 5_000_000), st.integers(0, 2**32), st.integers(0, 2**53)
)
ROWS = st.lists(st.tuples(st.text(max_size=5), NUMBERS), max_size=30)


def batch(rows: list[tuple[str, tuple[int, ...]]]) -> pa.RecordBatch:
    columns = [[key for key, _ in rows], *[[numbers[at] for _, numbers in rows] for at in range(5)]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 30))
def test_order_and_batching_do_not_matter(
    rows: list[tuple[str, tuple[int, ...]]], shuffle: random.Random, cut: int
) -> None:
    shuffled = shuffle.sample(rows, len(rows))
    parts = digest.add(digest.digest(batch(shuffled[:cut])), digest.digest(batch(shuffled[cut:])))
    assert parts == digest.digest(batch(rows))


@given(ROWS.filter(bool), st.data())
def test_a_lost_a_doubled_and_a_changed_row_each_change_it(
    rows: list[tuple[str, tuple[int, ...]]], data: st.DataObject
) -> None:
    whole, at = digest.digest(batch(rows)), data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.integers(0, 4))
    key, numbers = rows[at]
    changed = (key, (*numbers[:column], numbers[column] + 1, *numbers[column + 1 :]))
    renamed = (key + "x", numbers)
    for other in (rows[:at] + rows[at + 1 :], [*rows, rows[at]]):
        assert digest.digest(batch(other)) != whole
    for instead in (changed, renamed):
        assert digest.digest(batch([*rows[:at], instead, *rows[at + 1 :]])) != whole


def test_two_errors_that_keep_the_totals_are_seen() -> None:
    rows = [("a", (0, 5, 10, 1, 9)), ("b", (0, 5, 20, 2, 9))]
    swapped = [("a", (0, 5, 20, 2, 9)), ("b", (0, 5, 10, 1, 9))]
    assert digest.digest(batch(rows)) != digest.digest(batch(swapped))
