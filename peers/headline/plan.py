"""The table of all engines as data: its rows, and the loads that every row gets.

A row is an engine under one guarantee. Each row gets three loads, and each load answers one question:

- `flat out`: how many events per second, and at what processor time per event?
- `steady`: how long until a committed reader has a row?
- `killed`: what is lost, and what is duplicated?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.lab.engine import SPARK, Engine
from oncebench.lab.lab import Lab
from oncebench.report.schema import Report
from oncebench.report.tables.engines import FLAT_OUT, KILLED, OURS, SHIPPED, STEADY
from oncebench.scenario.cell import Cell
from oncebench.scenario.reproduce import RUN, Program
from peers.command import Peer
from peers.flink.__main__ import FLINK
from peers.kafka_streams.__main__ import KAFKA_STREAMS

STEADY_EVENTS_PER_S = 3000.0
KILLS = 3


@dataclass(frozen=True)
class Row:
    """An engine under one guarantee.

    Attributes:
        engine: its name in words, as in the table.
        guarantee, variant: as a cell has them.
        peer: None for the suite's own pipeline.
    """

    engine: str
    guarantee: str
    variant: str
    peer: Peer | None = None

    def has(self, report: Report) -> bool:
        """Whether the report is of a run of this row."""
        cell = report["cell"]
        return (cell["guarantee"], cell["variant"]) == (self.guarantee, self.variant)

    @property
    def name(self) -> str:
        """The row in words, by which the command selects it."""
        return f"{self.engine} {self.guarantee} {self.variant}"


# Flink and Streams have state on the heap, and state in RocksDB, which our pipeline has. Flink's first interval is a
# usual one, the second is short. The interval of Streams is the default of exactly-once, so both of its guarantees
# commit equally often.
ROWS = (
    Row(OURS, AT_MOST_ONCE, "claim"),
    Row(OURS, AT_LEAST_ONCE, "acknowledged"),
    Row(SHIPPED, AT_LEAST_ONCE, "native"),
    Row(OURS, EXACTLY_ONCE, "idempotent"),
    Row(OURS, EXACTLY_ONCE, "two-phase"),
    Row(FLINK.title, AT_MOST_ONCE, "flink-hashmap-1000ms", FLINK),
    Row(FLINK.title, AT_LEAST_ONCE, "flink-hashmap-1000ms", FLINK),
    Row(FLINK.title, EXACTLY_ONCE, "flink-hashmap-1000ms", FLINK),
    Row(FLINK.title, EXACTLY_ONCE, "flink-hashmap-200ms", FLINK),
    Row(FLINK.title, EXACTLY_ONCE, "flink-rocksdb-1000ms", FLINK),
    Row(KAFKA_STREAMS.title, AT_LEAST_ONCE, "streams-rocksdb-100ms", KAFKA_STREAMS),
    Row(KAFKA_STREAMS.title, EXACTLY_ONCE, "streams-rocksdb-100ms", KAFKA_STREAMS),
    Row(KAFKA_STREAMS.title, EXACTLY_ONCE, "streams-memory-100ms", KAFKA_STREAMS),
)
LOADS: Mapping[str, Mapping[str, Any]] = {
    # In its first 6 s, Flink's compilers raised its speed from 90,000 to 320,000 events/s. After the warm-up, 2 M to
    # 3 M events are left: 7 s for the fastest engine. The limit keeps a batch of our pipeline to about 2 s.
    FLAT_OUT: {"rate": "max", "sessions": 40_000, "max_events_per_batch": 200_000, "warmup_s": 8.0},
    STEADY: {"rate": STEADY_EVENTS_PER_S, "sessions": round(STEADY_EVENTS_PER_S * 40 / EVENTS_PER_SESSION),
             "warmup_s": 10.0},
    # Each kill waits until the engine runs again, so the load lasts about as long as the kills.
    KILLED: {"rate": 1000.0, "sessions": 400, "random_kills": KILLS},
}  # fmt: skip


def cells(rows: Sequence[Row], rounds: int, seed: int) -> Iterator[Cell]:
    """Yields the runs, round by round.

    Therefore each figure of a row has neighbours of the same time in every other row.

    The runs of a round have one seed: the same events, and the same draws of the times of kills. Every second round
    runs backwards, so a machine that becomes slower disadvantages no row.
    """
    for number in range(rounds):
        for load in LOADS.values():
            for row in rows if number % 2 == 0 else reversed(rows):
                cell = Cell("kafka", row.guarantee, row.variant, seed=seed + number, **load)
                timeout_ms = cell.transaction_timeout_ms if row.peer is None else row.peer.transaction_timeout_ms
                yield replace(cell, transaction_timeout_ms=timeout_ms)


def engine_of(cell: Cell, lab: Lab) -> Engine:
    """Returns the engine that runs the cell."""
    peer = _peer_of(cell)
    return SPARK if peer is None else peer.engine(cell, lab.java)


def program_of(cell: Cell) -> Program:
    """Returns the command line that runs the cell alone."""
    peer = _peer_of(cell)
    return RUN if peer is None else peer.program


def _peer_of(cell: Cell) -> Peer | None:
    return next(row.peer for row in ROWS if (row.guarantee, row.variant) == (cell.guarantee, cell.variant))
