"""Rounds: the same cells several times, interleaved, so that a round is comparable.

Promise: every second round runs in reverse order, so no cell always has the warmer or the busier machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oncebench.scenario.cell import Cell


def in_rounds(cells: Sequence[Cell], rounds: int) -> list[Cell]:
    """The runs of these rounds; each round has its own seed.

    Faulted cells run in the first round only, unless all cells are faulted.
    """
    repeated = [cell for cell in cells if not cell.faulted] or cells
    orders = [cells, *(repeated if number % 2 == 0 else repeated[::-1] for number in range(1, rounds))]
    return [replace(cell, seed=cell.seed + number) for number, order in enumerate(orders) for cell in order]
