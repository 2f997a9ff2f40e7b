"""When a batch began and ended, by its line in `progress.jsonl`.

Promise: by Spark's own clock of the trigger, in epoch µs, to its millisecond. Lines of older runs tell only when they
were written, some 0.2 to 0.5 s after the end: Spark's listeners are called when there is time. So do lines that the
next start has written for a batch whose own line a kill has prevented.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Line = Mapping[str, Any]


def took_us(line: Line) -> int:
    """How long it took; 0 where Spark told no time."""
    took_ms: float = line.get("duration_ms", {}).get("triggerExecution", 0)
    return round(took_ms * 1000)


def ended_us(line: Line) -> int:
    """When it stood in Spark's commit log."""
    return int(line["began_us"]) + took_us(line) if "began_us" in line else int(line["t_us"])


def began_us(line: Line) -> int:
    """When its trigger began."""
    return ended_us(line) - took_us(line)
