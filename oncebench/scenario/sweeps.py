"""Sweeps: one field of a cell at several values, everything else unchanged. Data.

Promise: a sweep changes one field and, if needed, the number of sessions. The load then lasts as long as without the
sweep, and for at least a few triggers. A replayed file is sent whole at each value. There is no sweep over an in-memory
state store: Spark's `transformWithState` requires RocksDB (`UNSUPPORTED_FEATURE.STORE_BACKEND_NOT_SUPPORTED_FOR_TWS`).

Failure modes: at one of the values the load is too short for its shape, or a sweep of the rate has a flat-out load
(`UserError`).
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

# The fewest batches with input in a load: a run excludes the first ones from its figures and keeps as many.
FEWEST_TRIGGERS = 6


@dataclass(frozen=True)
class Sweep:
    """One field of a cell and its values; `label` formats a value, for `--only` too."""

    field: str
    values: tuple[Any, ...]
    label: Callable[[Any], str] = str

    def of(self, cells: Sequence[Cell]) -> Iterator[Cell]:
        """The cells at each value: all cells at one value, then all at the next.

        Cells that are compared with each other then run one after the other.
        """
        for value in self.values:
            for cell in cells:
                yield _keep_duration(cell, replace(cell, **{self.field: value}))

    def name(self, cell: Cell) -> str:
        """A cell's name in this sweep: its title, and the value if the title lacks it."""
        value = self.label(getattr(cell, self.field))
        return cell.brief if value in cell.brief else f"{cell.brief}, {value}"


def _trigger(ms: int) -> str:
    return "trigger none" if ms == 0 else f"trigger {ms}ms" if ms < 1000 else f"trigger {ms // 1000}s"


SWEEPS: Mapping[str, Sweep] = {
    "trigger": Sweep("trigger_ms", (0, 100, 500, 1_000, 5_000, 30_000), _trigger),
    "rate": Sweep("rate", (500.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0), lambda rate: f"rate {rate:,.0f}"),
    "record-size": Sweep("record_bytes", (0, 1_000, 10_000), lambda size: f"{size // 1000}kB" if size else "unpadded"),
    "open-sessions": Sweep(
        "open_sessions", (1_000, 10_000, 100_000, 1_000_000), lambda number: f"{number} open sessions"
    ),
    "state-store": Sweep("state_store", STATE_CHOICES),
    "checkpoint": Sweep("checkpoint_writing", CHECKPOINT_CHOICES),
    "partitions": Sweep("partitions", (1, 2, 4, 8), lambda number: f"partitions {number}"),
}


def _keep_duration(before: Cell, cell: Cell) -> Cell:
    """The cell with enough sessions to last as long as `before`.

    It lasts for FEWEST_TRIGGERS triggers at least. A file is sent whole.
    """
    if cell.records or isinstance(cell.rate, str):
        return cell
    if isinstance(before.rate, str):
        raise UserError(
            f"{before.title}: its load is flat out and has no duration that a sweep of the rate can keep. Give a "
            "number as --rate too, or another profile",
            exit_code=ExitCode.USAGE,
        )
    lasts_s = max(before.load_s, FEWEST_TRIGGERS * cell.trigger_ms / 1000)
    longer = replace(cell, sessions=sessions_for(cell.shape, cell.rate, lasts_s))
    try:
        parse_shape(longer.shape, cell.rate, longer.sessions * EVENTS_PER_SESSION)
    except LoadError as error:
        raise UserError(f"{longer.title} at {cell.rate:,g} events/s: {error}", exit_code=ExitCode.USAGE) from error
    return longer
