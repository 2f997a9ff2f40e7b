"""The cells that `oncebench plan --measure` runs. Data.

Promise: they vary what a plan chooses, the load and the partitions, and nothing else. Each setting can be predicted
from the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadgen.session import EVENTS_PER_SESSION
from oncebench.scenario.cell import Cell

# (events per second, partitions, trigger in ms). Small batches show the fixed part and the part per partition, large
# ones the part per event. A rate of 10,000 keeps two cores three quarters busy.
STEADY = (
    (1_000.0, 2, 0),
    (1_000.0, 16, 0),
    (1_000.0, 32, 0),
    (3_000.0, 2, 0),
    (3_000.0, 4, 0),
    (3_000.0, 2, 1_000),
    (5_000.0, 8, 0),
    (10_000.0, 2, 0),
)
# (partitions, events per batch), flat out: only here is the part per event most of a batch.
FLAT_OUT = ((2, 50_000), (2, 100_000), (16, 100_000))
# The warm-up of the published series, and ten seconds of figures: at 1,000 events/s, the hundred sessions of a p99.
LOAD_S, WARMUP_S = 16.0, 6.0
# Eight batches of 100,000 events remain after the warm-up.
FLAT_OUT_SESSIONS = 12_000


def plan_cells(sink: str, guarantee: str, variant: str) -> Iterator[Cell]:
    """The cells of one sink, guarantee and variant."""
    for rate, partitions, trigger_ms in STEADY:
        sessions = round(rate * LOAD_S / EVENTS_PER_SESSION)
        yield Cell(
            sink, guarantee, variant,
            rate=rate, sessions=sessions, partitions=partitions, trigger_ms=trigger_ms, warmup_s=WARMUP_S,
        )  # fmt: skip
    for partitions, limit in FLAT_OUT:
        yield Cell(
            sink, guarantee, variant,
            rate="max", sessions=FLAT_OUT_SESSIONS, partitions=partitions, max_events_per_batch=limit,
        )  # fmt: skip
