"""The pipeline as plainly as can be: batches of events in, rows and a quarantine out.

Promise: the rules of docs/anomalies.md, one event after the other, with no code of the pipeline or of an auditor. A
batch's time is that of its newest record. A session leaves the state at the end of a batch, `timeout_ms` or more after
the batch in which it was last seen, or later: a pipeline may keep a session for longer.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Event(NamedTuple):
    """One record of the input topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    time_ms: int


class Copy(NamedTuple):
    """One record of the quarantine; without a position it is a session that never ended."""

    reason: str
    partition: int | None
    offset: int | None
    key: bytes
    value: bytes | None


Row = tuple[str, int, int, int, int]  # session_key, j, total, checksum, ended_at


def fields_of(event: Event) -> dict[str, Any] | str:
    """Returns the fields of an event, or the reason why it is not valid."""
    if event.value is None:
        return "null-value"
    try:
        found = json.loads(event.value)
    except ValueError:
        return "not-json"
    return found if found["session_key"].encode() == event.key else "wrong-fields"


def rows_of(key: bytes, session: dict[int, dict[str, Any]]) -> list[Row]:
    """Returns the 20 rows of a session with all of its events, by seq."""
    rows = []
    for j in range(20):
        values = [(seq, session[seq]["value"]) for seq in range(5 * j, 5 * j + 5)]
        text = "".join(f"{seq}={value};" for seq, value in values)
        total = sum(value for _, value in values)
        rows.append((key.decode(), j, total, zlib.crc32(text.encode()), session[99]["scheduled_at"]))
    return rows


def timer_text(session: dict[int, dict[str, Any]]) -> bytes:
    """Returns the value of a session's record in quarantine."""
    return json.dumps({"values": {str(seq): session[seq]["value"] for seq in sorted(session)}}).encode()


@dataclass
class Plain:
    """A pipeline with its state.

    Args:
        timeout_ms: after how long without an event a session may leave the state.
        forgets: whether a session leaves the state as soon as it may, or never.
    """

    timeout_ms: int
    forgets: bool
    rows: list[Row] = field(default_factory=list)
    quarantine: list[Copy] = field(default_factory=list)
    state: dict[bytes, dict[int, dict[str, Any]]] = field(default_factory=dict)
    seen_ms: dict[bytes, int] = field(default_factory=dict)

    def run(self, batches: Sequence[Sequence[Event]]) -> None:
        """Reads batches."""
        now_ms = 0
        for batch in batches:
            now_ms = max([now_ms, *(event.time_ms for event in batch)])
            for event in sorted(batch, key=lambda each: (each.partition, each.offset)):
                self.read(event, now_ms)
            for key in [key for key, at in self.seen_ms.items() if now_ms - at >= self.timeout_ms and self.forgets]:
                self.forget(key)

    def read(self, event: Event, now_ms: int) -> None:
        """Reads one event."""
        fields = fields_of(event)
        if isinstance(fields, str):
            self.quarantine.append(Copy(fields, *event[:4]))
            return
        session = self.state.setdefault(event.key, {})
        self.seen_ms[event.key] = now_ms
        if fields["seq"] in session:
            reason = "after-end" if len(session) == 100 else "repeated-seq"
            self.quarantine.append(Copy(reason, *event[:4]))
            return
        session[fields["seq"]] = fields
        if len(session) == 100:
            self.rows += rows_of(event.key, session)

    def forget(self, key: bytes) -> None:
        """Lets a session leave the state."""
        session = self.state.pop(key)
        del self.seen_ms[key]
        if len(session) < 100:
            self.quarantine.append(Copy("never-ended", None, None, key, timer_text(session)))
