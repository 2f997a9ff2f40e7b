"""Waits until PostgreSQL has a slot for each prepared transaction of a batch.

Every PREPARE TRANSACTION takes one of `max_prepared_transactions` slots of the server until the transaction is
committed or rolled back. All programs of the server share them. A PREPARE without a slot fails and rolls its
transaction back, so a task waits before it prepares, with its rows already written.

Promise: a wait ends at SLOTS_LIMIT_S, with the names of the holders.
What can go wrong: another program takes the last slot between the look and the PREPARE. The batch fails then, and the
next attempt waits at its start.
"""

from __future__ import annotations

import logging
import time

import psycopg

from oncebench.delivery.failures.postgres import NEW_JOB, OF_JOBS
from oncebench.sinks.postgres.connection import Names

# Another program holds slots from its prepare to its commit, at most for a restart in between: seconds. After a minute
# they are orphans, which only a person can end.
SLOTS_LIMIT_S = 60.0
_PAUSE_S = 0.1
_SHOWN = 3  # prepared transactions in a message
_log = logging.getLogger(__name__)


def wait_for_slots(connection: psycopg.Connection, names: Names, needed: int) -> str | None:
    """Waits until others leave `needed` slots.

    Returns None, or what is wrong if they never do.

    Slots of this sink_id count as free: its transactions end before the next batch prepares, or take part in this one.
    """
    deadline = time.monotonic() + SLOTS_LIMIT_S
    waiting = False
    while not _enough(connection, names, needed):
        if time.monotonic() > deadline:
            return f"{_trouble(connection, names, needed)} This was tried for {SLOTS_LIMIT_S:g} s."
        if not waiting:
            waiting = True
            trouble = _trouble(connection, names, needed)
            _log.warning("waiting at most %g s for slots of prepared transactions: %s", SLOTS_LIMIT_S, trouble)
        time.sleep(_PAUSE_S)
    return None


def _enough(connection: psycopg.Connection, names: Names, needed: int) -> bool:
    row = connection.execute(
        "SELECT current_setting('max_prepared_transactions')::int - count(*) FROM pg_prepared_xacts "
        "WHERE NOT starts_with(gid, %s)",
        (names.gid_prefix,),
    ).fetchone()
    assert row is not None, "an aggregate gives one row"
    return bool(row[0] >= needed)


def _trouble(connection: psycopg.Connection, names: Names, needed: int) -> str:
    taken = connection.execute(
        "SELECT gid, owner, database, prepared::timestamptz(0)::text FROM pg_prepared_xacts "
        "WHERE NOT starts_with(gid, %s) ORDER BY prepared",
        (names.gid_prefix,),
    ).fetchall()
    allowed = connection.execute("SELECT current_setting('max_prepared_transactions')").fetchone()
    assert allowed is not None, "a SELECT without FROM gives one row"
    shown = [f"{gid!r} (of {owner} in {database}, since {since})" for gid, owner, database, since in taken[:_SHOWN]]
    shown += [f"and {len(taken) - _SHOWN} more"] if len(taken) > _SHOWN else []
    return (
        f"two-phase needs {needed} prepared transactions per batch, but max_prepared_transactions is {allowed[0]}, and "
        f"others hold {len(taken)} of them: {', '.join(shown)}. All are in pg_prepared_xacts: end the orphans with "
        f"ROLLBACK PREPARED or COMMIT PREPARED in their database ({OF_JOBS}). Or raise max_prepared_transactions, "
        f"or take the variant idempotent {NEW_JOB}."
    )
