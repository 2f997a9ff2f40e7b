"""What a log would show after a fault that only a server can have: done to the rows of a sound run, in the record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oncebench.record import Record
from tests.unit.audit.audit_world import (
    STARTED_US,
    Shown,
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
    """A transaction at the end of partition 0 that nobody ends: a committed reader is kept below it."""
    sound = make_record(WORLD)
    ends = dict(sound.ends["output"])
    ends["0"] = {"lso": ends["0"]["lso"], "hw": ends["0"]["hw"] + 21}
    return replace(sound, ends={**sound.ends, "output": ends})


def one_lost_one_doubled() -> Record:
    """As many rows as are owed, but one of them twice in another's place."""
    return make_record(WORLD, [*WORLD.rows[:13], *WORLD.rows[14:], WORLD.rows[50]])


def one_session_lost_one_invented() -> Record:
    """As many sessions as are owed, but one of them is nobody's."""
    invented = [replace(row, key=b"invented").changed(session_key="invented") for row in WORLD.of(2)]
    return make_record(WORLD, [*WORLD.rows[:40], *invented, *WORLD.rows[60:]])


def exchanged() -> Record:
    """Two rows of two sessions under each other's keys: every id is there once."""
    rows = list(WORLD.rows)
    rows[7], rows[47] = _under(rows[47], key_of(0)), _under(rows[7], key_of(2))
    return make_record(WORLD, rows)


def dealt_out() -> Record:
    """The rows of a session in turns in two partitions, each of which has its own in order."""
    return make_record(WORLD, [replace(row, partition=row.row["j"] % 2) for row in WORLD.rows])


def ended_late() -> Record:
    """A commit that was given up arrives amid the next transaction and shows half of it; the replay writes it whole."""
    half = [row for row in WORLD.of(4) if row.row["j"] < 10]
    return make_record(WORLD, [*WORLD.rows[:80], *half, *WORLD.rows[80:]])


def acknowledged_and_not_there() -> Record:
    """The load says that Kafka has taken the end of session 5, and the topic does not hold it."""
    world = make_world(6, 2, unfinished=1)
    sound = make_record(world)
    missing = (sound.ledger.session == 5) & (sound.ledger.seq == 99)
    sent_us = np.where(missing, sound.ledger.scheduled_us, sound.ledger.sent_us)
    ledger = replace(sound.ledger, sent_us=sent_us, acked_us=np.where(missing, sent_us + 1, sound.ledger.acked_us))
    return replace(sound, ledger=ledger)


def written_late() -> Record:
    """A driver that was succeeded wakes up and writes the last session, behind what its successor wrote before it."""
    sound = make_record(WORLD)
    places = [offset for partition, offset, _ in lay_out(WORLD.rows) if partition == 1]
    told = [stretch(1, offset, offset, producer=1 + (at < 40), generation=1 + (at < 40))
            for at, offset in enumerate(places)]  # fmt: skip
    ends = [stretch(1, places[-1] + more, places[-1] + more, producer=more, marker="commit") for more in (1, 2)]
    return replace(sound, log=log_of(*told, *ends))


def shown_although_aborted() -> Record:
    """The log says that the transaction with the last rows was aborted, and a committed reader is shown them."""
    places = [offset for partition, offset, _ in lay_out(WORLD.rows) if partition == 1]
    told = [stretch(1, offset, offset, producer=1 + (at >= 40)) for at, offset in enumerate(places)]
    ends = [stretch(1, places[-1] + 1, places[-1] + 1, producer=1, marker="commit"),
            stretch(1, places[-1] + 2, places[-1] + 2, producer=2, marker="abort")]  # fmt: skip
    return replace(make_record(WORLD), log=log_of(*told, *ends))


def shown_in_parts() -> Record:
    """A sink that shows a batch in one step shows half of it first."""
    sound = make_record(WORLD)
    placed = lay_out(WORLD.rows)
    seen = observed_table(placed, [STARTED_US + 1000 * (1 + (at >= 60)) for at in range(len(placed))])
    return replace(sound, observed=replace(sound.observed, table=seen), ends={**sound.ends, "batches_at_once": True})


def sound() -> Record:
    """Nothing befell the run."""
    return make_record(WORLD)


def _under(row: Shown, key: str) -> Shown:
    return replace(row, key=key.encode()).changed(session_key=key)
