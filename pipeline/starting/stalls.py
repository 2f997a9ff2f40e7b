"""Reports input partitions in which a transaction does not end.

A committed reader cannot read further in such a partition.

A transaction that its producer never ends holds the last stable offset. Committed readers then wait, also for later
records of other producers. Brokers abort such a transaction after the producer's time-out. They never abort a hanging
transaction (KIP-890, KIP-664).

Promise: such a wait is logged with its partition, its offset and a command that aborts the transaction. This happens
once the wait has lasted for STALLED_S, and again each REPEAT_S. The module changes nothing: only the operator knows
whether the transaction's producer still works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Longer than the default time-out of a transaction (Java's producers: 60 s).
STALLED_S = 90.0
REPEAT_S = 600.0


@dataclass
class Stalls:
    """Per partition: since when it waits, and when that was last reported."""

    _since: dict[str, tuple[int, float]] = field(default_factory=dict)
    _reported: dict[str, float] = field(default_factory=dict)

    def found(self, ends: Mapping[str, tuple[int, int]], now: float) -> list[tuple[str, int, float]]:
        """Returns (partition, offset, seconds) for each wait that is to be reported now.

        Args:
            ends: partition -> (end for committed readers, end).
            now: in seconds, of a clock that only goes forward.
        """
        due = []
        for partition, (stable, end) in sorted(ends.items(), key=lambda each: int(each[0])):
            if stable >= end:
                self._since.pop(partition, None)
                self._reported.pop(partition, None)
                continue
            at, since = self._since.get(partition, (-1, now))
            if at != stable:
                self._since[partition] = stable, now
                self._reported.pop(partition, None)
            elif now - since >= STALLED_S and now - self._reported.get(partition, -REPEAT_S) >= REPEAT_S:
                self._reported[partition] = now
                due.append((partition, stable, now - since))
        return due


def text(topic: str, servers: str, stall: tuple[str, int, float]) -> str:
    """Returns the message for a wait."""
    partition, offset, seconds = stall
    return (
        f"input topic {topic!r}, partition {partition}: an open transaction at offset {offset} keeps committed readers "
        f"from all records behind it, for {seconds:.0f} s so far. This job waits, and loses nothing, until the "
        "transaction's producer or the broker ends it. If its producer is gone for good, abort it, which drops its "
        f"records: kafka-transactions.sh --bootstrap-server {servers} abort --topic {topic} --partition {partition} "
        f"--start-offset {offset}"
    )
