"""A PostgreSQL that is silent for a while: its reader still gets a signal.

Ctrl-C is such a signal.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.sinks.registry import suite_sinks
from tests.pipelines import place

pytestmark = pytest.mark.integration
SINK = suite_sinks()["postgres"]
SILENT_S = 10.0  # by far longer than a signal takes


def test_a_signal_is_heard_while_the_server_is_silent(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Heard(Exception):
        pass

    def hear(*_: object) -> None:
        raise Heard

    monkeypatch.setenv(VARIABLE, server.dsn)
    target = SINK.provide(place("silent", Path()))
    with closing(SINK.read(target)) as reader:
        with psycopg.connect(server.dsn) as connection:
            query = "SELECT pid FROM pg_stat_activity WHERE starts_with(application_name, 'oncebench.reader')"
            ((session,),) = connection.execute(query).fetchall()
        speaks = threading.Timer(SILENT_S, os.kill, (session, signal.SIGCONT))
        calls = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
        before = signal.signal(signal.SIGUSR1, hear)
        os.kill(session, signal.SIGSTOP)
        began = time.monotonic()
        try:
            speaks.start()
            with pytest.raises(Heard):
                calls.start()
                reader.poll(2 * SILENT_S)
            assert time.monotonic() - began < SILENT_S / 2
        finally:
            os.kill(session, signal.SIGCONT)
            speaks.cancel()
            calls.join()
            signal.signal(signal.SIGUSR1, before)
