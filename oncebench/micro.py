"""What runs for every event, row or transaction beside Spark and Kafka, each as one call that can be timed: no JVM.

Promise: names and arguments do not change, for `benchmarks/` times old commits by them; what a call needs is made by
`Work()` before, and is the same each time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from loadgen.pacing import parse_shape
from loadgen.schedule import schedule
from loadgen.session import encode
from oncebench.judge.model import expected_output
from pipeline.digest import digest
from pipeline.events import check
from pipeline.sessions import rows_of
from pipeline.wire import Transaction, end_txn_request

SESSIONS, EVENTS = 100, 10_000  # enough that what happens once does not count
STARTED_US = 1_700_000_000_000_000
ROW = ("session_key", "j", "events", "total", "checksum", "ended_at")


def made() -> tuple[list[str], list[str]]:
    """Keys and values of every event of the sessions, session by session."""
    session = np.repeat(np.arange(SESSIONS, dtype=np.uint32), 100)
    seq = np.tile(np.arange(100, dtype=np.uint8), SESSIONS)
    return encode(1, session, seq, STARTED_US + np.arange(EVENTS, dtype=np.int64))


class Work:
    """The events of all sessions, their rows and their topic; each method is what is timed."""

    def __init__(self) -> None:
        keys, values = made()
        self.records = [(key.encode(), value.encode()) for key, value in zip(keys, values, strict=True)]
        rows = [row for key in keys[::100] for row in rows_of(key, list(range(100)), STARTED_US)]
        self.batch = pa.RecordBatch.from_pydict({name: [row[name] for row in rows] for name in ROW})
        self.topic = pa.table({
            "partition": pa.array([0] * EVENTS, pa.int32()),
            "offset": pa.array(range(EVENTS), pa.int64()),
            "key": pa.array([key for key, _ in self.records], pa.binary()),
            "value": pa.array([value for _, value in self.records], pa.binary()),
        })  # fmt: skip

    def schedule(self) -> None:
        """When the generator is to send each event."""
        list(schedule(1, SESSIONS, parse_shape("constant", 2000.0, EVENTS)))

    def encode(self) -> None:
        """The bytes of each event."""
        made()

    def check(self) -> None:
        """Whether each event is valid."""
        for key, value in self.records:
            check(key, value)

    def rows(self) -> None:
        """The rows of each session."""
        for key, _ in self.records[::100]:
            list(rows_of(key.decode(), list(range(100)), STARTED_US))

    def digest(self) -> None:
        """The digest of all rows as one batch."""
        digest(self.batch)

    def end_txn(self) -> None:
        """A hundred EndTxn requests, as bytes."""
        for producer in range(100):
            end_txn_request(Transaction(f"oncebench-{producer}", producer, 0), True).encode(version=3)

    def expected_output(self) -> None:
        """What the topic owes, by the first auditor."""
        expected_output(self.topic)
