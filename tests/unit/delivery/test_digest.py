"""The digest sums row hashes without an order.

It is compared only with digests of its own kind. The hash itself is Spark's: `tests/contract/test_digest.py` computes
it over every Spark type.
"""

from __future__ import annotations

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from oncebench.delivery import digest

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30)


def of(hashes: list[int]) -> int:
    return digest.digest(pa.array(hashes, pa.int64()))


@given(HASHES, st.randoms(use_true_random=False), st.integers(0, 30))
def test_order_and_batching_do_not_matter(hashes: list[int], shuffle: random.Random, cut: int) -> None:
    shuffled = shuffle.sample(hashes, len(hashes))
    assert digest.add(of(shuffled[:cut]), of(shuffled[cut:])) == of(hashes)


@given(HASHES.filter(bool), st.data())
def test_a_lost_duplicated_or_changed_row_changes_it(hashes: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(hashes) - 1))
    changed = data.draw(st.integers(-(2**63), 2**63 - 1).filter(lambda other: other != hashes[at]))
    if hashes[at]:  # a row whose hash is 0 is the one in 2**64 that the sum does not show
        assert of(hashes[:at] + hashes[at + 1 :]) != of(hashes)
        assert of([*hashes, hashes[at]]) != of(hashes)
    assert of([*hashes[:at], changed, *hashes[at + 1 :]]) != of(hashes)


@given(st.integers(0, 2**64 - 1))
def test_what_is_stored_is_read_back(value: int) -> None:
    assert digest.from_text(digest.to_text(value)) == value


def test_digests_of_an_earlier_version_are_not_compared() -> None:
    assert [digest.from_text(stored) for stored in ("1f", "00000000000000ab", 17, None)] == [None] * 4


def test_rows_and_hashes_are_told_apart() -> None:
    batch = pa.record_batch({"a": pa.array(["x"]), digest.HASH: pa.array([5], pa.int64())})
    rows, hashes = digest.without_hash(batch)
    assert (rows.schema.names, hashes.to_pylist()) == (["a"], [5])
