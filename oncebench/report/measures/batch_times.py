"""The beginning and the end of a batch, according to its line in `progress.jsonl`.

Promise: times are from Spark's own clock of the trigger, in epoch µs, exact to the millisecond. Some lines have only
the time at which they were written: lines of older runs, and lines that the next start wrote for a batch whose own
line a kill had prevented. That time is 0.2 to 0.5 s after the end, because Spark calls its listeners when it has time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Line = Mapping[str, Any]


def took_us(line: Line) -> int:
    """The duration of a batch; 0 where Spark reported no time."""
    took_ms: float = line.get("duration_ms", {}).get("triggerExecution", 0)
    return round(took_ms * 1000)


def ended_us(line: Line) -> int:
    """The time at which the batch was in Spark's commit log.

    For an engine without batches: at which it had read up to the position of this line.
    """
    if "read_us" in line:
        return int(line["read_us"])
    return int(line["began_us"]) + took_us(line) if "began_us" in line else int(line["t_us"])


def began_us(line: Line) -> int:
    """The time at which the batch's trigger began."""
    return ended_us(line) - took_us(line)
