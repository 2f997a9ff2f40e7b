"""The stateful operator: returns a session once its 100 events have arrived.

The query splits a session into 20 rows.

Promise: the rows depend on the session's events alone, not on a clock, a batch number or an order of arrival other than
(partition, offset). Therefore a replay of a batch makes the same rows. Each event ends in exactly one place: in the
state, in a row, or in quarantine with the reason of its rejection.

A finished session leaves a small tombstone, which distinguishes a late event from the start of a new session. A timer
removes tombstones and sessions that never end from the state. The operator's clock is the time at which Spark planned a
batch. Spark's offset log has this time, also as the watermark that fires the timer, so a replay decides the same.

A session leaves the state if batches are planned for at least `timeout_ms` and none of them has an event of the
session. The watermark may jump, for example after an outage. Therefore the first timer only starts the second, which
fires when the watermark has advanced by `timeout_ms` since. The second removes the session if no batch has seen it in
that time. A session that was just seen never expires. The age of its events does not matter, nor does the age of events
in other partitions.

What can go wrong: an event that comes more than `timeout_ms` after its session may be taken for a new session. It is
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

from pipeline.events import AFTER_END, EVENTS_PER_SESSION, LAST_SEQ, NEVER_ENDED, REPEATED_SEQ
from pipeline.packing import Arrived, offset_of, unpack

ROWS_PER_SESSION = 20
EVENTS_PER_ROW = EVENTS_PER_SESSION // ROWS_PER_SESSION
# The first event of each row, and the text of its checksum with a place for each value.
_ROW_TEXTS = [
    (first, b"".join(b"%d=%%d;" % seq for seq in range(first, first + EVENTS_PER_ROW)))
    for first in range(0, EVENTS_PER_SESSION, EVENTS_PER_ROW)
]
MISSING = -1  # no event has this value: values are 0..999999

# The operator returns a session (reason is null) or a rejected record (reason is not null). The two lists of a session
# have an element for each of its rows. A rejected record has the `key`, `value` and position of the input record.
OUTPUT_SCHEMA = (
    "session_key string, ended_at bigint, totals array<bigint>, checksums array<bigint>, "
    "reason string, source_partition int, source_offset bigint, key binary, value binary"
)
# `last_ms`: the time when the session was last seen. A checkpoint of an earlier version may contain a value below zero,
# for a session that was not seen since its first timer fired.
STATE_SCHEMA = "finished boolean, last_ms long, arrived int, ended_at long, values array<int>"
_Output = Row(*(field.split()[0] for field in OUTPUT_SCHEMA.split(", ")))


def first_timer(time_ms: int) -> int:
    """Returns an even time for a session's first timer: this time, or the next millisecond.

    An even time marks a first timer, an odd one a second timer. So the first one does not read or change the state.
    """
    return time_ms + time_ms % 2


def second_timer(time_ms: int) -> int:
    """Returns an odd time for a session's second timer: this time, or the next millisecond."""
    return time_ms | 1


def is_second(time_ms: int) -> bool:
    """Whether this is the time of a second timer."""
    return time_ms % 2 == 1


def finished_session(session_key: str, values: list[int], ended_at: int) -> Row:
    """Returns a finished session: total and checksum of each of its 20 rows.

    Args:
        session_key: the session.
        values: the value of each event, indexed by seq; 100 of them.
        ended_at: the end event's `scheduled_at`, epoch µs.
    """
    totals, checksums = [], []
    for first, text in _ROW_TEXTS:
        part = values[first : first + EVENTS_PER_ROW]
        totals.append(sum(part))
        checksums.append(zlib.crc32(text % tuple(part)))
    return _Output(session_key, ended_at, totals, checksums, None, None, None, None, None)


def rejected(reason: str, partition: int | None, offset: int | None, key: bytes | None, value: bytes | None) -> Row:
    """Returns a rejected record for the quarantine topic."""
    return _Output(None, None, None, None, reason, partition, offset, key, value)


class Sessions(StatefulProcessor):
    """The operator in Spark: state per session key, one timer per session.

    Args:
        timeout_ms: how long a session without a new event stays in the state at least; at most twice as long, while
            batches are planned.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.session = handle.getValueState("session", STATE_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Takes a batch's packed rows of one key; yields the session when it is complete."""
        accepted = []
        for row in rows:
            if row["reason"] is None:
                accepted.append(row)
            else:
                yield rejected(row["reason"], row["partition"], offset_of(row), row["key"], row["texts"])
        if accepted:
            # The batch's time is behind the watermark if the machine's clock was set back.
            seen_ms = max(timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs())
            # A shuffle does not keep the order within a key; `unpack` restores it.
            yield from self._advance(bytes(key[0]), unpack(accepted), seen_ms)

    def _advance(self, key: bytes, events: list[Arrived], seen_ms: int) -> Iterator[Row]:
        known = self.session.get()
        if known is None:
            finished, last_ms, arrived, ended_at, values = False, 0, 0, 0, [MISSING] * EVENTS_PER_SESSION
        else:
            finished, last_ms, arrived, ended_at, values = known
            values = list(values)
        last_ms = max(last_ms, seen_ms)
        for partition, offset, seq, value, scheduled_at, texts, start, end in events:
            if finished or values[seq] != MISSING:
                reason = AFTER_END if finished else REPEATED_SEQ
                yield rejected(reason, partition, offset, key, texts[start:end])
                continue
            values[seq] = value
            arrived += 1
            if seq == LAST_SEQ:
                ended_at = scheduled_at
            if arrived == EVENTS_PER_SESSION:
                finished = True
                yield finished_session(key.decode("utf-8"), values, ended_at)
                values = []
        if known is None:
            self.handle.registerTimer(first_timer(last_ms + self.timeout_ms))
        self.session.update((finished, last_ms, arrived, ended_at, values))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Removes a tombstone or an unfinished session that was not seen since its first timer.

        Rejects the unfinished session.
        """
        expired_ms, now_ms = expiredTimerInfo.getExpiryTimeInMs(), timerValues.getCurrentWatermarkInMs()
        if not is_second(expired_ms):
            self.handle.registerTimer(second_timer(now_ms + self.timeout_ms))
            return
        known = self.session.get()
        if known is None:
            return
        finished, last_ms, _, _, values = known
        if last_ms >= expired_ms - self.timeout_ms:  # seen since the first timer
            self.handle.registerTimer(second_timer(now_ms + self.timeout_ms))
            return
        self.session.clear()
        if not finished:
            held = {seq: value for seq, value in enumerate(values) if value != MISSING}
            yield rejected(NEVER_ENDED, None, None, bytes(key[0]), json.dumps({"values": held}).encode())

    def close(self) -> None:
        """Does nothing: nothing is open between batches."""
