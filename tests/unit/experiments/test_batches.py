"""The process of `oncebench batches`: the order of its arms, and how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from oncebench.delivery.errors import DeliveryFailed
from oncebench.experiments import batches
from oncebench.experiments.batches import order_of

ARMS = ["at-least-once", "native", "at-most-once", "idempotent", "two-phase"]
ROUNDS = 400


def test_each_arm_runs_once_per_round_and_follows_each_other_equally_often() -> None:
    rounds = [order_of(ARMS, number, 1) for number in range(ROUNDS)]
    assert all(sorted(order) == sorted(ARMS) for order in rounds)
    followed = Counter(pairwise(arm for order in rounds for arm in order))
    others = [followed[before, arm] for before in ARMS for arm in ARMS if before != arm]
    fair = ROUNDS / len(ARMS)  # a rotation gives one neighbour 320 of 400 rounds
    assert 0.7 * fair < min(others) and max(others) < 1.4 * fair
    first = Counter(order[0] for order in rounds)
    assert 0.7 * fair < min(first.values()) and max(first.values()) < 1.4 * fair


def test_the_order_of_a_round_is_always_the_same() -> None:
    assert order_of(ARMS, 7, 1) == order_of(ARMS, 7, 1)


def test_each_seed_gives_other_orders() -> None:
    one, two = ([order_of(ARMS, number, seed) for number in range(ROUNDS)] for seed in (1, 2))
    assert sum(a == b for a, b in zip(one, two, strict=True)) < ROUNDS / 20  # one of 120 orders is expected to agree


def test_a_failed_query_ends_with_its_cause_and_not_with_spark_s_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = []

    @contextmanager
    def sockets(config: Any) -> Iterator[Any]:
        entered.append(config)
        yield config

    def fail(*_: Any) -> None:
        raise RuntimeError("[STREAM_FAILED]\noncebench.delivery.errors.DeliveryFailed: no broker\n +- LocalRelation")

    (tmp_path / "plan.json").write_text('{"input": "in", "events": 1, "rounds": 1, "suite": 1, "seed": 1}')
    (tmp_path / "arm-kafka.json").touch()
    for name, fake in {"short_sockets": sockets, "own_temporary": sockets, "session": MagicMock(),
                       "Arm": MagicMock(), "with_input": MagicMock(),
                       "read_config": lambda _: SimpleNamespace(sink="kafka"), "take_turns": fail}.items():  # fmt: skip
        monkeypatch.setattr(batches, name, fake)
    with pytest.raises(DeliveryFailed, match=r"^no broker$"):
        batches.run(tmp_path)
    assert len(entered) == 2, "a folder for temporary files, and sockets with short names"
