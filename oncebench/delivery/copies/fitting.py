"""A copy, and how much of it fits into the quarantine topic.

Promise: a copy that is too large is cut and never refused for its size. The value and the key keep as many bytes as
fit, from their beginnings, and a header has each original length. If the original's headers alone do not fit, they are
dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncebench.delivery.copies.headers import HEADERS_DROPPED, KEY_BYTES, VALUE_BYTES, Header

# A record batch's own fields (Kafka's message format 2), which `max.message.bytes` includes.
_BATCH_BYTES = 61
# The longest variable-length integer of a length or a count.
_LENGTH_BYTES = 5
# A record's own fields: its length, attributes, timestamp, offset, two lengths and the number of headers.
_RECORD_BYTES = 3 + 4 * _LENGTH_BYTES


@dataclass(frozen=True)
class Copy:
    """A record for the quarantine topic.

    Attributes:
        key, value: of the original, or their beginnings.
        theirs: the original's headers.
        ours: our headers.
        timestamp_ms: the original's; 0: the time of the copy.
    """

    key: bytes | None
    value: bytes | None
    theirs: tuple[Header, ...]
    ours: tuple[Header, ...]
    timestamp_ms: int = 0

    @property
    def headers(self) -> list[Header]:
        """All headers in the order of the record."""
        return [*self.theirs, *self.ours]

    @property
    def size(self) -> int:
        """Bytes in the topic without compression, at most."""
        return record_bytes(self.key, self.value, self.headers)


def record_bytes(key: bytes | None, value: bytes | None, headers: list[Header]) -> int:
    """Returns the most bytes that a batch with this record alone takes in a topic."""
    names = sum(2 * _LENGTH_BYTES + len(name.encode()) + len(content or b"") for name, content in headers)
    return _BATCH_BYTES + _RECORD_BYTES + len(key or b"") + len(value or b"") + names


def fitted(copy: Copy, limit: int) -> Copy:
    """Returns the copy, cut to at most `limit` bytes.

    A limit below the size of our headers gives a copy without key, value and headers of the original.
    """
    if copy.size <= limit:
        return copy
    lengths = ((KEY_BYTES, b"%d" % len(copy.key or b"")), (VALUE_BYTES, b"%d" % len(copy.value or b"")))
    room = limit - record_bytes(None, None, [*copy.headers, *lengths])
    if room < 0 and copy.theirs:
        dropped = (HEADERS_DROPPED, b"%d" % len(copy.theirs))
        return fitted(replace(copy, theirs=(), ours=(*copy.ours, dropped)), limit)
    room = max(room, 0)
    key_room = max(room // 2, room - len(copy.value or b""))
    key = None if copy.key is None else copy.key[:key_room]
    value = None if copy.value is None else copy.value[: room - len(key or b"")]
    cut = tuple(length for length, whole, kept in zip(lengths, (copy.key, copy.value), (key, value), strict=True)
                if whole != kept)  # fmt: skip
    return replace(copy, key=key, value=value, ours=(*copy.ours, *cut))
