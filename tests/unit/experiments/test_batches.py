"""The order of arms in `oncebench batches`."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from oncebench.experiments.batches import order_of

ARMS = ["at-least-once", "native", "at-most-once", "idempotent", "two-phase"]
ROUNDS = 400


def test_each_arm_runs_once_per_round_and_follows_each_other_equally_often() -> None:
    rounds = [order_of(ARMS, number) for number in range(ROUNDS)]
    assert all(sorted(order) == sorted(ARMS) for order in rounds)
    followed = Counter(pairwise(arm for order in rounds for arm in order))
    others = [followed[before, arm] for before in ARMS for arm in ARMS if before != arm]
    fair = ROUNDS / len(ARMS)  # a rotation gives one neighbour 320 of 400 rounds
    assert 0.7 * fair < min(others) and max(others) < 1.4 * fair
    first = Counter(order[0] for order in rounds)
    assert 0.7 * fair < min(first.values()) and max(first.values()) < 1.4 * fair


def test_the_order_of_a_round_is_always_the_same() -> None:
    assert order_of(ARMS, 7) == order_of(ARMS, 7)
