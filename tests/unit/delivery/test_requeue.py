"""A transaction of requeue ends long before Kafka aborts it, however large the copies are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from oncebench.delivery.copies.letters import Letter
from oncebench.delivery.copies.requeue import MOST_BYTES, MOST_IN_TRANSACTION, portions

MB = 1_000_000


def copies(count: int, size: int) -> list[Letter]:
    message = SimpleNamespace(key=lambda: None, value=lambda: b"v" * size)
    return [Letter(message, (), {}) for _ in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "size", "most"),
    [(0, 1, 0), (2_500, 10, MOST_IN_TRANSACTION), (100, MB, MOST_BYTES // MB + 1), (3, 2 * MOST_BYTES, 1)],
)
def test_transactions_are_limited_in_copies_and_bytes(count: int, size: int, most: int) -> None:
    found = list(portions(copies(count, size)))
    assert sum(map(len, found)) == count
    assert max(map(len, found), default=0) == most
