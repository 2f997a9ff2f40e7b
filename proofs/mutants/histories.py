"""Records of faults that only a server can have, made by changing the rows of a sound run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oncebench.record import Record
from tests.unit.audit.audit_world import (
    STARTED_US,
    VisibleRow,
    World,
    key_of,
    lay_out,
    log_of,
    make_record,
    make_world,
    observed_table,
    stretch,
)

WORLD: World = make_world(6, 2)


def left_open() -> Record:
    """A transaction at the end of partition 0 stays open, so committed readers stop before it."""
    sound = make_record(WORLD)
    ends = dict(sound.ends["output"])
    ends["0"] = {"lso": ends["0"]["lso"], "hw": ends["0"]["hw"] + 21}
    return replace(sound, ends={**sound.ends, "output": ends})


def one_lost_one_duplicated() -> Record:
    """As many rows as expected, but one row is there twice and another is missing."""
    return make_record(WORLD, [*WORLD.rows[:13], *WORLD.rows[14:], WORLD.rows[50]])


def one_session_lost_one_invented() -> Record:
    """As many sessions as expected, but one session is not in the input and another is missing."""
    invented = [replace(row, key=b"invented").changed(session_key="invented") for row in WORLD.of(2)]
    return make_record(WORLD, [*WORLD.rows[:40], *invented, *WORLD.rows[60:]])


def exchanged() -> Record:
    """Two rows of two sessions have each other's keys; every id exists once."""
    rows = list(WORLD.rows)
    rows[7], rows[47] = _under(rows[47], key_of(0)), _under(rows[7], key_of(2))
    return make_record(WORLD, rows)


def dealt_out() -> Record:
    """A session's rows alternate between two partitions, and are in order within each."""
    return make_record(WORLD, [replace(row, partition=row.row["j"] % 2) for row in WORLD.rows])


def ended_late() -> Record:
    """A late commit arrives during the next transaction and makes half of it visible.

    The replay then writes all of that transaction.
    """
    half = [row for row in WORLD.of(4) if row.row["j"] < 10]
    return make_record(WORLD, [*WORLD.rows[:80], *half, *WORLD.rows[80:]])


def acknowledged_and_not_there() -> Record:
    """The ledger records the end of session 5 as acknowledged, but the topic does not hold it."""
    world = make_world(6, 2, unfinished=1)
    sound = make_record(world)
    missing = (sound.ledger.session == 5) & (sound.ledger.seq == 99)
    sent_us = np.where(missing, sound.ledger.scheduled_us, sound.ledger.sent_us)
    ledger = replace(sound.ledger, sent_us=sent_us, acked_us=np.where(missing, sent_us + 1, sound.ledger.acked_us))
    return replace(sound, ledger=ledger)


def written_late() -> Record:
    """A superseded driver wakes up and writes the last session after its successor's rows."""
    sound = make_record(WORLD)
    places = [offset for partition, offset, _ in lay_out(WORLD.rows) if partition == 1]
    written = [stretch(1, offset, offset, producer=1 + (at < 40), generation=1 + (at < 40))
            for at, offset in enumerate(places)]  # fmt: skip
    ends = [stretch(1, places[-1] + more, places[-1] + more, producer=more, marker="commit") for more in (1, 2)]
    return replace(sound, log=log_of(*written, *ends))


def visible_although_aborted() -> Record:
    """The log has the last rows' transaction as aborted, but a committed reader sees them."""
    places = [offset for partition, offset, _ in lay_out(WORLD.rows) if partition == 1]
    written = [stretch(1, offset, offset, producer=1 + (at >= 40)) for at, offset in enumerate(places)]
    ends = [stretch(1, places[-1] + 1, places[-1] + 1, producer=1, marker="commit"),
            stretch(1, places[-1] + 2, places[-1] + 2, producer=2, marker="abort")]  # fmt: skip
    return replace(make_record(WORLD), log=log_of(*written, *ends))


def visible_in_parts() -> Record:
    """Half of a batch of an atomic sink becomes visible first."""
    sound = make_record(WORLD)
    placed = lay_out(WORLD.rows)
    seen = observed_table(placed, [STARTED_US + 1000 * (1 + (at >= 60)) for at in range(len(placed))])
    return replace(sound, observed=replace(sound.observed, table=seen), ends={**sound.ends, "batches_at_once": True})


def sound() -> Record:
    """A run without a fault."""
    return make_record(WORLD)


def _under(row: VisibleRow, key: str) -> VisibleRow:
    return replace(row, key=key.encode()).changed(session_key=key)
