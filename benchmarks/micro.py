"""What runs for every event, row or transaction beside Spark and Kafka: pure Python, no JVM, seconds in all."""

import numpy as np
import pyarrow as pa

from loadgen import pacing as _pacing
from loadgen import schedule as _schedule
from loadgen import session as _session
from oncebench.judge import model as _model
from pipeline import digest as _digest
from pipeline import events as _events
from pipeline import sessions as _sessions
from pipeline import wire as _wire

_SESSIONS, _EVENTS = 100, 10_000  # enough that what happens once does not count
_STARTED_US = 1_700_000_000_000_000


def _made():
    """Keys and values of every event of the sessions, session by session."""
    session = np.repeat(np.arange(_SESSIONS, dtype=np.uint32), 100)
    seq = np.tile(np.arange(100, dtype=np.uint8), _SESSIONS)
    return _session.encode(1, session, seq, _STARTED_US + np.arange(_EVENTS, dtype=np.int64))


class Load:
    """The generator: its schedule, and the bytes of its events."""

    version = "1"

    def time_schedule(self):
        list(_schedule.schedule(1, _SESSIONS, _pacing.parse_shape("constant", 2000.0, _EVENTS)))

    def time_encode(self):
        _made()


class Pipeline:
    """The pipeline's own code: checking events, making rows, the digest of a batch, the wire of a commit."""

    version = "1"

    def setup(self):
        keys, values = _made()
        self.records = [(key.encode(), value.encode()) for key, value in zip(keys, values, strict=True)]
        rows = [row for key in keys[::100] for row in _sessions.rows_of(key, list(range(100)), _STARTED_US)]
        columns = ("session_key", "j", "events", "total", "checksum", "ended_at")
        self.rows = pa.RecordBatch.from_pydict({name: [row[name] for row in rows] for name in columns})

    def time_check(self):
        for key, value in self.records:
            _events.check(key, value)

    def time_rows(self):
        for key, _ in self.records[::100]:
            list(_sessions.rows_of(key.decode(), list(range(100)), _STARTED_US))

    def time_digest(self):
        _digest.digest(self.rows)

    def time_end_txn(self):
        for producer in range(100):
            _wire.end_txn_request(_wire.Transaction(f"oncebench-{producer}", producer, 0), True).encode(version=3)


class Audit:
    """The first auditor: what the input owes."""

    version = "1"

    def setup(self):
        keys, values = _made()
        self.table = pa.table({
            "partition": pa.array([0] * _EVENTS, pa.int32()),
            "offset": pa.array(range(_EVENTS), pa.int64()),
            "key": pa.array([key.encode() for key in keys], pa.binary()),
            "value": pa.array([value.encode() for value in values], pa.binary()),
        })  # fmt: skip

    def time_expected_output(self):
        _model.expected_output(self.table)
