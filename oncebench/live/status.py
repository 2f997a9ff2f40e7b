"""What there is to see of a run while it goes on: the last word of each part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seen:
    """What the live view shows.

    Attributes:
        phase: as docs/reading_the_tables.md lists them.
        load, observer: their newest status lines; empty as long as there is none.
        batch: the newest progress line of a batch.
        lag: events that are acknowledged and in no finished batch; None before the first batch.
        fault: see `FaultsSeen.told`.
        load_s: how long the load is to last, by its plan; None if it has no rate.
    """

    phase: str
    load: dict[str, Any]
    observer: dict[str, Any]
    batch: dict[str, Any]
    lag: int | None
    fault: str
    load_s: float | None = None


Show = Callable[[Seen], None]
