"""The count of deaths of the same batch by the same error, across restarts.

The count is never in the way of a delivery.
"""

from __future__ import annotations

from pathlib import Path

from oncebench.delivery.errors import DeliveryFailed, QueryDied, TransactionTooSlow
from oncebench.delivery.failures import deaths


def test_the_same_error_of_the_same_batch_counts_on_although_its_numbers_differ(tmp_path: Path) -> None:
    counted = [deaths.count(tmp_path, 7, DeliveryFailed(f"took {n} s by worker 4f{n}a")) for n in (11, 12, 13)]
    assert counted == [1, 2, 3]


def test_another_batch_or_error_begins_anew(tmp_path: Path) -> None:
    deaths.count(tmp_path, 7, QueryDied("no"))
    assert deaths.count(tmp_path, 8, QueryDied("no")) == 1
    assert deaths.count(tmp_path, 8, DeliveryFailed("no")) == 1
    assert deaths.count(tmp_path, 8, DeliveryFailed("other")) == 1
    assert deaths.count(tmp_path, 8, DeliveryFailed("other")) == 2


def test_a_delivered_batch_is_forgotten(tmp_path: Path) -> None:
    deaths.count(tmp_path, 7, QueryDied("no"))
    deaths.forget(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert deaths.count(tmp_path, 7, QueryDied("no")) == 1


def test_a_count_that_cannot_be_kept_is_the_first(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert [deaths.count(gone, 7, QueryDied("no")) for _ in range(2)] == [1, 1]
    deaths.forget(gone)
    (tmp_path / deaths.NAME).write_text("[]")
    assert deaths.count(tmp_path, 7, QueryDied("no")) == 1


def test_a_slow_transaction_is_the_same_error_in_whatever_words(tmp_path: Path) -> None:
    words = ("the producer was fenced", "0 rows were acknowledged")
    assert [deaths.count(tmp_path, 7, TransactionTooSlow(text)) for text in words] == [1, 2]
