"""The stateful operator: makes 20 rows of a session once its 100 events have arrived.

Promise: the rows depend on the session's events alone, not on a clock, a batch number or an order of arrival other than
(partition, offset). Therefore a replay of a batch makes the same rows. Each event ends in exactly one place: in the
state, in a row, or in quarantine with the reason of its rejection.

A finished session leaves a small tombstone, which distinguishes a late event from the start of a new session. An
event-time timer removes tombstones and sessions that never end from the state. The watermark that fires the timer is in
Spark's offset log, so a replay decides the same.

What can go wrong: an event that comes more than `timeout_ms` after its session is taken for a new session. It is
rejected as `never-ended` when its own timer fires.

The operator uses Spark's keyed state, `transformWithState` (SPARK-46815), the counterpart of Flink's
KeyedProcessFunction.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from oncebench.delivery import quarantine
from pipeline.events import (
    AFTER_END,
    EVENTS_PER_SESSION,
    LAST_SEQ,
    NEVER_ENDED,
    REPEATED_SEQ,
    Event,
    check,
)
from pipeline.rows import ROW, SCHEMA

ROWS_PER_SESSION = 20
EVENTS_PER_ROW = EVENTS_PER_SESSION // ROWS_PER_SESSION
MISSING = -1  # no event has this value: values are 0..999999

# The operator returns a row (reason is null) or a rejected record (reason is not null). A rejected record has the
# `key`, `value` and position of the input record.
_REJECTED = "reason string, source_partition int, source_offset bigint, key binary, value binary"
OUTPUT_SCHEMA = ", ".join([*(f"{each.name} {each.dataType.simpleString()}" for each in SCHEMA), _REJECTED])
STATE_SCHEMA = "finished boolean, last_ms long, arrived int, ended_at long, values array<int>"
FIELDS = (*ROW, *quarantine.FIELDS)
_Output = Row(*FIELDS)


def rows_of(session_key: str, values: list[int], ended_at: int) -> Iterator[Row]:
    """Yields the 20 rows of a finished session.

    Args:
        session_key: the session.
        values: the value of each event, indexed by seq; 100 of them.
        ended_at: the end event's `scheduled_at`, epoch µs.
    """
    for j in range(ROWS_PER_SESSION):
        first = j * EVENTS_PER_ROW
        part = values[first : first + EVENTS_PER_ROW]
        text = "".join(f"{seq}={value};" for seq, value in enumerate(part, first))
        checksum = zlib.crc32(text.encode("ascii"))
        yield _Output(session_key, j, len(part), sum(part), checksum, ended_at, None, None, None, None, None)


def rejected(reason: str, partition: int | None, offset: int | None, key: bytes | None, value: bytes | None) -> Row:
    """Returns a rejected record for the quarantine topic."""
    return _Output(None, None, None, None, None, None, reason, partition, offset, key, value)


class Sessions(StatefulProcessor):
    """The operator in Spark: state per session key, one timer per session.

    Args:
        timeout_ms: event time after a session's last event, when the session leaves the state.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.session = handle.getValueState("session", STATE_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Takes a batch's records of one key; yields the session's rows when it is complete."""
        # Input rows: key, partition, offset, event_ms, value. A shuffle does not keep the order within a key; sorting
        # by offset restores it.
        records = sorted(rows, key=lambda row: (row["partition"], row["offset"]))
        events: list[tuple[Row, Event]] = []
        for record in records:
            found = check(record["key"], record["value"])
            if isinstance(found, str):
                yield rejected(found, record["partition"], record["offset"], record["key"], record["value"])
            else:
                events.append((record, found))
        if events:
            yield from self._advance(bytes(key[0]).decode("utf-8"), events, timerValues)

    def _advance(self, session_key: str, events: list[tuple[Row, Event]], timer_values: Any) -> Iterator[Row]:
        known = self.session.get()
        if known is None:
            finished, last_ms, arrived, ended_at, values = False, 0, 0, 0, [MISSING] * EVENTS_PER_SESSION
        else:
            finished, last_ms, arrived, ended_at, values = known
            values = list(values)
        for record, event in events:
            # A batch from partitions of different age may have event times behind the watermark. The timer then counts
            # from the watermark, or a session would expire as soon as it is seen.
            last_ms = max(last_ms, record["event_ms"], timer_values.getCurrentWatermarkInMs())
            if finished or values[event.seq] != MISSING:
                reason = AFTER_END if finished else REPEATED_SEQ
                yield rejected(reason, record["partition"], record["offset"], record["key"], record["value"])
                continue
            values[event.seq] = event.value
            arrived += 1
            if event.seq == LAST_SEQ:
                ended_at = event.scheduled_at
            if arrived == EVENTS_PER_SESSION:
                finished = True
                yield from rows_of(session_key, values, ended_at)
                values = []
        if known is None:
            self.handle.registerTimer(last_ms + self.timeout_ms)
        self.session.update((finished, last_ms, arrived, ended_at, values))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002
        """Removes a tombstone or an unfinished session from the state.

        Rejects the unfinished session.
        """
        known = self.session.get()
        if known is None:
            return
        finished, last_ms, _, _, values = known
        if last_ms + self.timeout_ms > expiredTimerInfo.getExpiryTimeInMs():
            self.handle.registerTimer(last_ms + self.timeout_ms)
            return
        self.session.clear()
        if not finished:
            held = {seq: value for seq, value in enumerate(values) if value != MISSING}
            yield rejected(NEVER_ENDED, None, None, bytes(key[0]), json.dumps({"values": held}).encode())

    def close(self) -> None:
        """Does nothing: nothing is open between batches."""
