"""Batches of the whole pipeline: which arm gets which batch, and that all have the same size."""

from __future__ import annotations

import pytest

from oncebench.delivery.errors import QueryDied
from oncebench.experiments.batches import order_of
from oncebench.experiments.whole_batches import WARM_ROUNDS, arm_of, batches_of, refuse_other_sizes

ARMS = ["at-least-once", "idempotent", "two-phase"]


def test_each_round_has_a_batch_of_each_arm() -> None:
    found = [arm_of(number, order_of, ARMS) for number in range(batches_of(len(ARMS), 4))]
    for at in range(WARM_ROUNDS + 4):
        assert sorted(arm for each, arm in found if each == at) == sorted(ARMS)


def test_a_batch_of_another_size_is_refused() -> None:
    refuse_other_sizes([50_000, 49_990, 50_010], 50_000)
    with pytest.raises(QueryDied, match=r"batch 1 had 30,000 events instead of 50,000"):
        refuse_other_sizes([50_000, 30_000], 50_000)
