"""Micro-benchmarks of the project's own code per event, row or transaction, without a JVM.

Promise: names and arguments do not change, because `benchmarks/` uses them to time old commits. `Work()` prepares the
data of every call, and the data is the same each time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from loadgen.config import LoadConfig
from loadgen.ledger import Ledger
from loadgen.pacing import parse_shape
from loadgen.plan import plan_load
from loadgen.schedule import schedule
from loadgen.session import EVENTS_PER_SESSION, encode
from oncebench import record
from oncebench.audit.python.audit import audit
from oncebench.audit.python.model import expected_output
from oncebench.delivery.digest import digest
from oncebench.record import FINAL, INPUT, OBSERVED, QUARANTINE, Record
from oncebench.record.events import DRAINED
from oncebench.record.json_lines import Lines
from oncebench.record.schema import BATCH
from oncebench.record.streams import Stream
from oncebench.sinks.kafka.coordinator import Transaction, end_txn_request
from pipeline.events import check
from pipeline.packing import pack
from pipeline.sessions import EVENTS_PER_ROW, finished_session

SESSIONS = 100  # enough that one-time costs do not count
EVENTS = SESSIONS * EVENTS_PER_SESSION
STARTED_US = 1_700_000_000_000_000
VALUES = list(range(EVENTS_PER_SESSION))
ROW = ("session_key", "j", "events", "total", "checksum", "ended_at")


def rows_of(session_key: str, values: list[int], ended_at: int) -> list[dict[str, Any]]:
    """Returns the rows that the query makes of a finished session."""
    session = finished_session(session_key, values, ended_at)
    parts = enumerate(zip(session["totals"], session["checksums"], strict=True))
    columns = [(session_key, j, EVENTS_PER_ROW, total, checksum, ended_at) for j, (total, checksum) in parts]
    return [dict(zip(ROW, row, strict=True)) for row in columns]


def made() -> tuple[list[str], list[str]]:
    """Returns keys and values of every event, session by session."""
    session = np.repeat(np.arange(SESSIONS, dtype=np.uint32), EVENTS_PER_SESSION)
    seq = np.tile(np.arange(EVENTS_PER_SESSION, dtype=np.uint8), SESSIONS)
    return encode(1, session, seq, STARTED_US + np.arange(EVENTS, dtype=np.int64))


class Work:
    """Events of all sessions, their rows and their topic; each public method is a benchmark."""

    def __init__(self) -> None:
        keys, values = made()
        self.records = [(key.encode(), value.encode()) for key, value in zip(keys, values, strict=True)]
        rows = [row for key in keys[::EVENTS_PER_SESSION] for row in rows_of(key, VALUES, STARTED_US)]
        self.hashes = pa.array([hash(repr(row)) for row in rows], pa.int64())
        self.batch = pa.RecordBatch.from_pydict({name: [row[name] for row in rows] for name in ROW})
        self.topic = pa.table({
            "partition": pa.array([0] * EVENTS, pa.int32()),
            "offset": pa.array(range(EVENTS), pa.int64()),
            "key": pa.array([key for key, _ in self.records], pa.binary()),
            "value": pa.array([value for _, value in self.records], pa.binary()),
        })  # fmt: skip
        self.events = self.topic.combine_chunks().to_batches()
        self.record = self._recorded([json.loads(value) for value in values])

    def _recorded(self, events: Sequence[Mapping[str, Any]]) -> Record:
        """Returns the record of a run with these events whose rows are all visible."""
        rows = [
            row
            for first in range(0, EVENTS, EVENTS_PER_SESSION)
            for session in (events[first : first + EVENTS_PER_SESSION],)
            for row in rows_of(
                session[0]["session_key"], [event["value"] for event in session], session[-1]["scheduled_at"]
            )
        ]
        visible = pa.table({
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(range(len(rows)), pa.int64()),
            "timestamp_ms": pa.array([0] * len(rows), pa.int64()),
            "key": pa.array([row["session_key"].encode() for row in rows], pa.binary()),
            "value": pa.array([json.dumps(row).encode() for row in rows], pa.binary()),
        }, FINAL)  # fmt: skip
        sent = STARTED_US + np.arange(EVENTS, dtype=np.int64)
        ledger = record.Ledger(
            session=np.repeat(np.arange(SESSIONS, dtype=np.uint32), EVENTS_PER_SESSION),
            seq=np.tile(np.arange(EVENTS_PER_SESSION, dtype=np.uint8), SESSIONS),
            scheduled_us=sent, sent_us=sent + 1, acked_us=sent + 2,
            partition=np.zeros(EVENTS, np.int32), offset=np.arange(EVENTS, dtype=np.int64),
        )  # fmt: skip
        zeros = pa.array([0] * EVENTS, pa.int64())
        return Record(
            path=Path("made-up"),
            cell={},
            plan=record.Plan(1, SESSIONS, EVENTS, "made-up", STARTED_US),
            ledger=ledger,
            input=Stream(self.topic.add_column(2, "timestamp_ms", zeros).cast(INPUT), complete=True),
            final=Stream(visible, complete=True),
            observed=Stream(OBSERVED.empty_table(), complete=True),
            quarantine=Stream(QUARANTINE.empty_table(), complete=True),
            ends={"output": {"0": {"lso": len(rows), "hw": len(rows)}}, "final_complete": True},
            progress=Lines(({"kind": BATCH, "batch": 0, "end_offsets": {"0": EVENTS}},)),
            timeline=Lines(({"t_us": STARTED_US, "event": DRAINED},)),
        )

    def schedule(self) -> None:
        """The planned send time of each event."""
        list(schedule(1, SESSIONS, parse_shape("constant", 2000.0, EVENTS)))

    def encode(self) -> None:
        """The bytes of each event."""
        made()

    def pack(self) -> None:
        """The rows of all events, checked and packed as one record batch."""
        for _ in pack(iter(self.events)):
            pass

    def check(self) -> None:
        """Checks one by one whether each event is valid.

        The pipeline does this for events in another spelling.
        """
        for key, value in self.records:
            check(key, value)

    def rows(self) -> None:
        """Totals and checksums of each session."""
        for key, _ in self.records[::EVENTS_PER_SESSION]:
            finished_session(key.decode(), VALUES, STARTED_US)

    def digest(self) -> None:
        """The digest of all rows, from their hashes."""
        digest(self.hashes)

    def end_txn(self) -> None:
        """A hundred EndTxn requests, as bytes."""
        for producer in range(100):
            end_txn_request(Transaction(f"oncebench-{producer}", producer, 0), True).encode(version=3)

    def ledger(self) -> None:
        """Plans a load of these events on disk, and reopens its ledger."""
        with TemporaryDirectory() as folder:
            place = Path(folder) / "ledger"
            plan_load(LoadConfig("localhost:9092", "made-up", 2000.0, SESSIONS, place), lambda: STARTED_US)
            Ledger.open(place)

    def expected_output(self) -> None:
        """The output that the first auditor expects for the topic."""
        expected_output(self.topic)

    def audit(self) -> None:
        """The whole first audit of a run without loss or duplicates."""
        found = audit(self.record)
        assert found.rows["visible"] == len(self.batch) and not any(found.counts().values()), found.rows
