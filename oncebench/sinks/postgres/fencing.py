"""Ends the sessions of older drivers of a sink_id.

Promise: when `end_older` returns, older drivers can do nothing more. Sessions of paused processes are ended too. A task
that begins a transaction later finds the newer epoch.
"""

from __future__ import annotations

import time

import psycopg

from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.postgres.connection import Names, error_text

# An ended session disappears when it has rolled back, which takes milliseconds.
FENCE_LIMIT_S = 20.0
FENCE_PAUSE_S = 0.02


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
        RefusedStart: a session could not be ended; the message has its pid.
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
            raise RefusedStart(
                f"older drivers of sink_id {names.sink_id} still have sessions (pid {pids}) that could not "
                f"be ended ({refused or 'they do not answer'}). Run SELECT pg_terminate_backend(pid) for each as a "
                "superuser, then start again."
            )
        time.sleep(FENCE_PAUSE_S)
