"""When the pipeline may have written the rows of each session.

Promise: the two times of a session enclose every attempt to write its rows. They come from the pipeline's own lines:

- **Batches.** The batch that read the session's last event writes its rows. Its first attempt began after the batch
  before it had begun. If a kill prevented that line, the line before counts. The work ends with the line of the batch,
  and with the newest line if several batches read the event. A `recovered` line shows no time: the batch ended before.
- **Positions**, from an engine without batches. An attempt may read far ahead of the position that it reports. So the
  work on a session may begin when the last of its events is due. It ends with the first line beyond the event after
  which no line is below it: a start reports the position from which it continues. Within an attempt no position goes
  back, but one of several tasks may repeat an old one.

A session without such a line has no end. A batch that ran again is in the time between its two lines, so a failure
between them touches it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.audit.python.model import Expected
from oncebench.record.schema import BATCH, POSITION

STARTED = "started"  # the line that an attempt writes first
Times = npt.NDArray[np.float64]
# The load generator sends no event before it is due. The second allows for a clock that was set back.
CLOCK_US = 1_000_000


def writing_times(expected: Expected, progress: Sequence[Mapping[str, Any]]) -> tuple[Times, Times]:
    """[sessions] From when and until when the pipeline may have written the rows, in epoch µs.

    Both times may be infinite.
    """
    lines = list(_timed(progress))
    begun_us = np.array([_begun_us(lines, at) for at in range(len(lines))])
    from_us, until_us = (np.full(len(expected.session_keys), bound) for bound in (-math.inf, math.inf))
    for partition in {name for line in lines for name in line["end_offsets"]}:
        here = np.flatnonzero(expected.last_partition == int(partition))
        offset = expected.last_offset[here]
        of_partition = [at for at, line in enumerate(lines) if partition in line["end_offsets"]]
        ends = [lines[at]["end_offsets"][partition] for at in of_partition]
        first = np.searchsorted(np.maximum.accumulate(ends), offset, side="right")
        from_us[here] = np.append(begun_us[of_partition], -math.inf)[first]
        steps = [step for at in of_partition for step in _steps(lines[at], partition)]
        reached = np.array([to for to, _ in steps])
        last = np.searchsorted(np.minimum.accumulate(reached[::-1])[::-1], offset, side="right")
        until_us[here] = np.append([t_us for _, t_us in steps], math.inf)[last]
    if any(line["kind"] == POSITION for line in lines):
        from_us = expected.ended_at.min(axis=1) - float(CLOCK_US)
    return from_us, until_us


def _timed(progress: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields the lines that show times; the positions of an attempt never go back."""
    reached: dict[str, int] = {}
    for line in progress:
        if line["kind"] == STARTED:
            reached = {}
        elif line["kind"] == POSITION:
            ends = {name: max(end, reached.get(name, 0)) for name, end in line["end_offsets"].items()}
            reached |= ends
            yield {**line, "end_offsets": ends}
        elif line["kind"] == BATCH and not line.get("recovered"):
            yield line


def _begun_us(lines: Sequence[Mapping[str, Any]], at: int) -> float:
    """Returns when the batch before this line's had begun, or a time before that."""
    if at == 0:
        return -math.inf
    # Older runs do not record `began_us`, and a line may be written after the next batch has begun.
    earlier = lines[at - 3]["t_us"] if at > 2 else -math.inf
    return float(lines[at - 1].get("began_us", earlier))


def _steps(line: Mapping[str, Any], partition: str) -> list[tuple[int, int]]:
    """Returns the positions that a line shows, each with the line's time, in their order."""
    start = [line["start_offsets"].get(partition, 0)] if line["kind"] == BATCH else []
    return [(offset, line["t_us"]) for offset in (*start, line["end_offsets"][partition])]
