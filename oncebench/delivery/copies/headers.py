"""The headers of a copy: those of the original, then ours.

Promise: the original's headers come first, all of them, in their order. Ours follow and begin with REASON. So a
sender's header with one of our names is never taken for ours: `split` looks for the last REASON.
"""

from __future__ import annotations

from collections.abc import Sequence

Header = tuple[str, bytes | None]

REASON = "oncebench.reason"
SOURCE_TOPIC = "oncebench.source_topic"
# Missing if the copy is not of one record: a session that never ended.
SOURCE_PARTITION = "oncebench.source_partition"
SOURCE_OFFSET = "oncebench.source_offset"
# Epoch ms. The copy has the same timestamp, unless the quarantine topic does not take it.
SOURCE_TIMESTAMP = "oncebench.source_timestamp"
# Only if the original's headers and timestamp could not be read: the reason.
ORIGINAL = "oncebench.original"
GONE = b"gone"
NOT_READ = b"not read"
# The record at this position has another key or value.
OTHER = b"another record"
# Only if the key, the value or the original's headers were cut: the lengths and the number in the original.
KEY_BYTES = "oncebench.key_bytes"
VALUE_BYTES = "oncebench.value_bytes"
HEADERS_DROPPED = "oncebench.headers_dropped"
# A record that was sent again has this one: partition/offset of the copy in the quarantine topic.
REQUEUED_FROM = "oncebench.requeued_from"
# Marks of `oncebench requeue` have only this header (see `marks`). Its value is the group.
REQUEUE_GROUP = "oncebench.requeue_group"


def split(headers: Sequence[Header]) -> tuple[tuple[Header, ...], dict[str, bytes | None]]:
    """Returns the original's headers and ours; ours are empty if the record is not a copy."""
    starts = [at for at, (name, _) in enumerate(headers) if name == REASON]
    if not starts:
        return tuple(headers), {}
    return tuple(headers[: starts[-1]]), dict(headers[starts[-1] :])
