"""The right answer of the workload `windows`, from input topic, ledger and batches.

A row is a window: the events of one key whose `scheduled_at` lies in the same WINDOW_US. Its id is `KEY@START_MS:0`. It
has the number of these events, the sum of their values, the sum of (seq + 1) * (value + 1), and the window's end.

Which windows are expected depends on the input and the ledger alone:

- A window is **late** if it ended more than LATE_IN_KEY_US before the newest event of its key, or before the load. The
  generator plans such events. The watermark had passed their windows before the load, so each of them was dropped.
- A window is **open** if it begins after the last planned event of the load. Only the events that close the other
  windows are in such a window.
- Every other window is expected, with all its events. The generator held newer events back until the older ones were in
  the topic, so none of them can have been dropped.

A window belongs to the batch that returned it: the batch after the first one whose events moved the watermark to the
window's end. The watermark is the newest `scheduled_at` that was read, less DELAY_US, in whole ms.

Promise: there is no clock, no Spark, and no code shared with the pipeline. An event counts each time that it is in the
topic. What can go wrong: a batch line is missing. Then a window may be charged to the next batch. A window without a
known batch is not covered, so its missing row is pending and no loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from oncebench.audit.python.events import VALID
from oncebench.audit.python.history.evidence import known_ends
from oncebench.audit.python.history.reading_order import batches_of
from oncebench.audit.python.model import Events, Expected, Invalid, Parts, events_and_keys, read_in_order, take
from oncebench.audit.python.records import Ints, offsets_of, partitions_of
from oncebench.record import Record

WINDOW_US = 100_000
DELAY_US = 3_000_000
# 55 minutes. The other events of a key are less old than the load is long, 50 minutes at most, and late ones an hour.
LATE_IN_KEY_US = 3_300_000_000


def expected_windows(record: Record) -> Expected:
    """Returns the expected windows of a record."""
    position, read = read_in_order(record.input.table, record.input.release)
    valid = np.flatnonzero(read.reason == VALID)
    columns = take(read, valid)
    events, keys = events_and_keys(position[valid], columns)
    slot = events.scheduled_us // WINDOW_US
    first, slots = (int(slot.min()), int(slot.max()) - int(slot.min()) + 1) if len(slot) else (0, 1)
    pairs, window = np.unique(events.key.astype(np.int64) * slots + (slot - first), return_inverse=True)
    count, total, checksum = (np.zeros(len(pairs), np.int64) for _ in range(3))
    number = columns.number.astype(np.int64)
    np.add.at(count, window, 1)
    np.add.at(total, window, number)
    np.add.at(checksum, window, (events.seq.astype(np.int64) + 1) * (number + 1))
    start_us = (pairs % slots + first) * WINDOW_US
    names = [f"{keys[key]}@{at // 1000}" for key, at in zip((pairs // slots).tolist(), start_us.tolist(), strict=True)]
    newest_us = np.full(len(keys), record.plan.started_us, np.int64)
    np.maximum.at(newest_us, events.key, events.scheduled_us)
    late = start_us + WINDOW_US <= newest_us[pairs // slots] - LATE_IN_KEY_US
    expected = np.flatnonzero(~late & (start_us <= record.ledger.scheduled_us.max(initial=0)))
    others = np.flatnonzero(np.isin(np.arange(len(pairs)), expected, invert=True))
    ended_us = start_us[expected] + WINDOW_US
    last = _last_of_returning_batch(events, ended_us, list(known_ends(record.progress.items).values()))
    refused = np.flatnonzero(read.reason != VALID)
    return Expected(
        session_keys=[names[at] for at in expected.tolist()],
        key=expected,
        total=total[expected][:, None],
        checksum=checksum[expected][:, None],
        ended_at=ended_us[:, None],
        last_partition=partitions_of(last),
        last_offset=offsets_of(last),
        events=events,
        invalid=Invalid(position[refused], read.reason[refused]),
        keys=keys,
        unfinished={names[at]: int(count[at]) for at in others.tolist()},
        parts=Parts(names, window, count[expected][:, None], int(late[window].sum())),
    )


def _last_of_returning_batch(events: Events, ended_us: Ints, ends: Sequence[Mapping[int, int]]) -> Ints:
    """Returns for each window the last position that its batch read.

    Without a known batch, the position is beyond all events.
    """
    beyond = int(events.position.max(initial=-1)) + 1
    if not ends:
        return np.full(len(ended_us), beyond)
    batch = batches_of(events.position, ends)
    newest, last = np.full(len(ends) + 1, -1, np.int64), np.full(len(ends) + 1, -1, np.int64)
    np.maximum.at(newest, batch, events.scheduled_us)
    np.maximum.at(last, batch, events.position)
    last[len(ends)] = -1  # events that no known batch has read
    passing = np.searchsorted(np.maximum.accumulate(newest[:-1]), ended_us + DELAY_US)
    found = last[np.minimum(passing + 1, len(ends))]
    return np.where(found < 0, beyond, found)
