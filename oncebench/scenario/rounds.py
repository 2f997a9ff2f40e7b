"""Rounds: the same cells again and again in turns, so that figures of one round can be compared.

Promise: every other round goes backwards, so that no cell always has the warmer or the busier machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oncebench.scenario.cell import Cell


def in_rounds(cells: Sequence[Cell], rounds: int) -> list[Cell]:
    """The runs of so many rounds, each with a seed of its own; faulted cells are in the first only, unless there are no
    others."""
    again = [cell for cell in cells if not cell.faulted] or cells
    orders = [cells, *(again if number % 2 == 0 else again[::-1] for number in range(1, rounds))]
    return [replace(cell, seed=cell.seed + number) for number, order in enumerate(orders) for cell in order]
