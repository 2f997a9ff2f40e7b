"""Sweeps: one field of a cell at several values, everything else as it is. Data.

Promise: a sweep changes one field, and of the load only what that makes necessary: a load lasts as long as it did, or
as a few triggers. There is no state store in memory: Spark's `transformWithState` takes RocksDB only
(`UNSUPPORTED_FEATURE.STORE_BACKEND_NOT_SUPPORTED_FOR_TWS`). What can go wrong: at one of its values a load has no room
for its shape (`UserError`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadgen.errors import LoadError
from loadgen.pacing import parse_shape, sessions_for
from loadgen.session import EVENTS_PER_SESSION
from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import CHECKPOINT_CHOICES, STATE_CHOICES, Cell

# Batches with input that a load lasts for at least: those that a run leaves out as its first ones, and as many again.
FEWEST_TRIGGERS = 6


@dataclass(frozen=True)
class Sweep:
    """One field of a cell and its values; `told`: a value in words, for `--only` to pick it."""

    field: str
    values: tuple[Any, ...]
    told: Callable[[Any], str] = str

    def of(self, cells: Sequence[Cell]) -> Iterator[Cell]:
        """The cells at each value: all of them at one before the next, so that those which are compared with each other
        are run one after the other."""
        for value in self.values:
            for cell in cells:
                yield _as_long(cell, replace(cell, **{self.field: value}))

    def name(self, cell: Cell) -> str:
        """What a cell of this sweep is called: with its value, if its title does not tell it."""
        value = self.told(getattr(cell, self.field))
        return cell.brief if value in cell.brief else f"{cell.brief}, {value}"


def _trigger(ms: int) -> str:
    return "trigger none" if ms == 0 else f"trigger {ms}ms" if ms < 1000 else f"trigger {ms // 1000}s"


SWEEPS: Mapping[str, Sweep] = {
    "trigger": Sweep("trigger_ms", (0, 100, 500, 1_000, 5_000, 30_000), _trigger),
    "rate": Sweep("rate", (250.0, 500.0, 1_000.0, 2_000.0, 4_000.0), lambda rate: f"rate {rate:,.0f}"),
    "record-size": Sweep("record_bytes", (0, 1_000, 10_000), lambda size: f"{size // 1000}kB" if size else "unpadded"),
    "open-sessions": Sweep(
        "open_sessions", (1_000, 10_000, 100_000, 1_000_000), lambda number: f"{number} open sessions"
    ),
    "state-store": Sweep("state_store", STATE_CHOICES),
    "checkpoint": Sweep("checkpoint_writing", CHECKPOINT_CHOICES),
    "partitions": Sweep("partitions", (1, 2, 4, 8), lambda number: f"partitions {number}"),
}


def _as_long(before: Cell, cell: Cell) -> Cell:
    """The cell with as many sessions as its load needs to last as long as before, and for a few triggers."""
    if isinstance(before.rate, str) or isinstance(cell.rate, str):
        return cell
    lasts_s = max(before.load_s, FEWEST_TRIGGERS * cell.trigger_ms / 1000)
    longer = replace(cell, sessions=sessions_for(cell.shape, cell.rate, lasts_s))
    try:
        parse_shape(longer.shape, cell.rate, longer.sessions * EVENTS_PER_SESSION)
    except LoadError as error:
        raise UserError(f"{longer.title} at {cell.rate:,g} events/s: {error}", exit_code=ExitCode.USAGE) from error
    return longer
