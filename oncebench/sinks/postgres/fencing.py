"""Ends older drivers' sessions, and rolls back what they have prepared and not decided.

Promise: when `end_older` returns, older drivers can do nothing more. Sessions of paused processes are ended too. A task
that begins a transaction later finds the newer epoch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

import psycopg
from psycopg import sql

from oncebench.delivery.errors import NoPostgres, RefusedStart
from oncebench.sinks.postgres.connection import Names, error_text
from oncebench.sinks.postgres.reader import prepared

# An ended session disappears when it has rolled back, which takes milliseconds.
FENCE_LIMIT_S = 20.0
FENCE_PAUSE_S = 0.02
_log = logging.getLogger(__name__)


def sessions(connection: psycopg.Connection, names: Names) -> list[tuple[int, str, str]]:
    """Returns (pid, application_name, description) of the other sessions of this sink_id."""
    return connection.execute(
        "SELECT pid, application_name, format('session %%s from %%s since %%s', pid, "
        "coalesce(host(client_addr), 'the server''s machine'), backend_start::timestamptz(0)) "
        "FROM pg_stat_activity WHERE starts_with(application_name, %s) AND datname = current_database() "
        "AND pid <> pg_backend_pid() ORDER BY backend_start",
        (names.application_prefix,),
    ).fetchall()


def end_older(connection: psycopg.Connection, names: Names) -> None:
    """Ends the sessions of older epochs and returns when they are gone.

    Raises:
        RefusedStart: this role may not end a session; the message has its pid.
        NoPostgres: a session has not ended in time, because the server is slow. The next start may pass.
    """
    deadline = time.monotonic() + FENCE_LIMIT_S
    refused = ""
    while True:
        older = [pid for pid, application, _ in sessions(connection, names) if names.is_older(application)]
        if not older:
            return
        for pid in older:
            try:
                connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            except psycopg.errors.InsufficientPrivilege as error:
                refused = error_text(error)
        if time.monotonic() > deadline:
            pids = ", ".join(map(str, older))
            if not refused:
                raise NoPostgres(
                    f"older drivers of sink_id {names.sink_id} have sessions (pid {pids}) that did not end within "
                    f"{FENCE_LIMIT_S:g} s of pg_terminate_backend. No row was read or written. Check the load of the "
                    "server and of its disk, then start again."
                )
            raise RefusedStart(
                f"older drivers of sink_id {names.sink_id} still have sessions (pid {pids}) that could not "
                f"be ended ({refused}). Run SELECT pg_terminate_backend(pid) for each as a superuser, or GRANT "
                "pg_signal_backend to this role, then start again."
            )
        time.sleep(FENCE_PAUSE_S)


def roll_back_orphans(connection: psycopg.Connection, names: Names, decided: Collection[str]) -> None:
    """Rolls back the prepared transactions of older drivers that no decision names.

    Raises:
        RefusedStart: another role has prepared one.
    """
    for gid in prepared(connection, names):
        if gid not in decided:
            _log.info("rolling back %s: no decision names it", gid)
            statement = sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid))
            try:
                connection.execute(statement)
            except psycopg.errors.InsufficientPrivilege as error:
                raise of_another_role(connection, gid, statement) from error


def of_another_role(connection: psycopg.Connection, gid: str, statement: sql.Composed) -> RefusedStart:
    """Returns the error of a prepared transaction that another role has prepared.

    Only that role or a superuser may end it.

    Args:
        connection: to the server.
        gid: its name.
        statement: what this role may not do.
    """
    found = connection.execute("SELECT owner FROM pg_prepared_xacts WHERE gid = %s", (gid,)).fetchone()
    owner = "another role" if found is None else f"role {found[0]!r}"
    return RefusedStart(
        f"prepared transaction {gid!r} belongs to {owner}, and role {connection.info.user!r} may not end it. It keeps "
        "its locks until it is ended. Start once as that role, or run as a superuser in this database: "
        f"{statement.as_string(connection)}"
    )
