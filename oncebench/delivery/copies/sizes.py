"""The settings of a producer of copies for the size of a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.delivery.topics.settings import LARGEST, producer_sizes

# Room for the largest record at least. librdkafka's default, 1 GB per worker, would let a flood fill the memory.
QUEUE_BYTES = 64 * 1024 * 1024


def copy_sizes(limit: int) -> Mapping[str, Any]:
    """Returns librdkafka's settings for a topic that takes records of `limit` bytes.

    The broker refuses what is too large, not the client: its report names the copy.
    """
    queue = max(QUEUE_BYTES, 2 * limit) // 1024
    return {**producer_sizes(limit), "message.max.bytes": LARGEST, "queue.buffering.max.kbytes": queue}
