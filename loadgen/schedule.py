"""The order and the times of all events of a load, fixed before the first event is sent.

A shape is the rate of the load over time (`loadgen.pacing`). Its `cumulative(t)` counts the events that are due until
t, and its `inverse(k)` is the time at which event k is due. An event's place is a point on the axis of that count.

**Order.** Session i starts in its own slot of 100 events and has its own spread of 1 to 2 s. Its events lie in that
window, unevenly and in proportion to the shape's rate. All events are sorted by their place on the axis, which mixes
the events of different sessions.

**Time.** The event at place k of that order is due at `shape.inverse(k)`, so the rate is exact at every moment. In
return, the spread of some sessions differs from 1 to 2 s:

- shorter in the first and last two seconds of a load, down to less than half: few sessions are open, but the rate
  must be met;
- longer below 100 events/s, because a session has 100 events;
- shorter or longer at the edges of bursts;
- zero in a flat-out load.

If sessions have fewer than 100 events, the remaining events close the gaps in the order.

Memory is bounded by one block of sessions and the open sessions, not by the length of the load.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadgen.pacing import Shape, order_of
from loadgen.session import (
    EVENTS_PER_SESSION,
    LAST_SEQ,
    STREAM_POSITION,
    STREAM_SPREAD,
    STREAM_START,
    uniform,
)

MIN_SPREAD_S, MAX_SPREAD_S = 1.0, 2.0

SESSIONS_PER_BLOCK = 2_000
"""200,000 events: about 10 MB while they are sorted, and few blocks, so their overhead is small."""


class Block(NamedTuple):
    """Consecutive events of the schedule.

    `due_us` counts from the load's start and never decreases.
    """

    session: npt.NDArray[np.uint32]
    seq: npt.NDArray[np.uint8]
    due_us: npt.NDArray[np.int64]


def schedule(
    seed: int,
    sessions: int,
    shape: Shape,
    events_per_session: int = EVENTS_PER_SESSION,
    sessions_per_block: int = SESSIONS_PER_BLOCK,
) -> Iterator[Block]:
    """The first `events_per_session` events of each session, in the order of their due times.

    The result does not depend on `sessions_per_block`.
    """
    open_place = np.empty(0, dtype=np.float64)
    open_event = np.empty(0, dtype=np.int64)
    emitted, last_us = 0, 0
    for first in range(0, sessions, sessions_per_block):
        end = min(first + sessions_per_block, sessions)
        place, event = _places(seed, first, end, order_of(shape))
        place, event = np.concatenate((open_place, place)), np.concatenate((open_event, event))
        order = np.argsort(place, kind="stable")  # stable: equal places keep the order of (session, seq)
        place, event = place[order], event[order]
        # No later session starts before the slot of session `end`, so all events before that slot are final.
        ready = len(place) if end == sessions else int(np.searchsorted(place, float(end * EVENTS_PER_SESSION)))
        open_place, open_event, event = place[ready:].copy(), event[ready:].copy(), event[:ready]
        event = event[event % EVENTS_PER_SESSION < events_per_session]
        ready = len(event)
        if ready:
            counts = np.arange(emitted, emitted + ready, dtype=np.float64)
            due_us = np.rint(shape.inverse(counts) * 1e6).astype(np.int64)
            # A shape's inverse may decrease by a rounding error where its pieces meet.
            due_us = np.maximum.accumulate(due_us).clip(min=last_us)
            emitted, last_us = emitted + ready, int(due_us[-1])
            session, seq = np.divmod(event, EVENTS_PER_SESSION)
            yield Block(session.astype(np.uint32), seq.astype(np.uint8), due_us)


def _places(seed: int, first: int, end: int, shape: Shape) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Per event: its place in the count of due events, and 100 * session + seq."""
    index = np.arange(first, end, dtype=np.uint64)
    start = (index.astype(np.float64) + uniform(seed, STREAM_START, index)) * EVENTS_PER_SESSION
    spread_s = MIN_SPREAD_S + (MAX_SPREAD_S - MIN_SPREAD_S) * uniform(seed, STREAM_SPREAD, index)
    window = shape.cumulative(shape.inverse(start) + spread_s) - start
    event = np.arange(first * EVENTS_PER_SESSION, end * EVENTS_PER_SESSION, dtype=np.int64)
    seq = np.arange(EVENTS_PER_SESSION, dtype=np.float64)
    jitter = uniform(seed, STREAM_POSITION, event.astype(np.uint64)).reshape(-1, EVENTS_PER_SESSION) - 0.5
    jitter[:, 0] = jitter[:, LAST_SEQ] = 0.0  # the start event opens the window, the end event closes it
    position = (seq + jitter) / LAST_SEQ  # never decreases with seq, because a jitter is at most half a step
    return (start[:, None] + window[:, None] * position).ravel(), event
