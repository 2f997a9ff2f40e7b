"""PostgreSQL killed with SIGKILL and started again at every step of two-phase.

A real pipeline runs the protocol.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from oncebench.record.json_lines import read_lines
from oncebench.servers.postgres import PostgresServer, start_postgres
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.sinks.reader import Rows
from oncebench.sinks.registry import suite_sinks
from tests.pipelines import Fixture, every_row, place, position, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]
SINK = suite_sinks()["postgres"]
# In the order of a batch: the replay after each kill goes on to the next.
STEPS = ("mid-write", "before-prepare", "after-prepare", "before-decision", "after-decision", "mid-commit",
         "after-commit")  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    with start_postgres(tmp_path) as server:
        monkeypatch.setenv(VARIABLE, server.dsn)
        yield server


@pytest.mark.slow
def test_a_server_killed_at_every_step_of_a_batch_and_its_replays_loses_and_doubles_nothing(
    fixture: Fixture, server: PostgresServer
) -> None:
    target = SINK.provide(place("killed", fixture.folder))
    faults = [f"{step}:stop:90000@batch=0" for step in STEPS]
    config = fixture.config("exactly-once", "two-phase", *faults, sink="postgres", output=target, sink_id="killed")
    fixture.send([*session("k-1"), *session("k-22")])
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        for number, step in enumerate(STEPS, 1):
            hits = fixture.folder / "record" / "hits.jsonl"
            wait_for(f"the stop at {step}", lambda: len(read_lines(hits).items) == number, [pipeline])  # noqa: B023
            server.kill()
            server.start()
            assert pipeline.child is not None
            pipeline.child.thaw()
        wait_for("the batch to be done", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        fixture.send(session("k-333"))
        wait_for("the next batch", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        pipeline.stop()
    assert [hit["point"] for hit in read_lines(fixture.folder / "record" / "hits.jsonl").items] == list(STEPS)
    found: list[Rows] = []
    with closing(SINK.read(target)) as reader:
        assert reader.read_to_end(found.append, settle_s=0, idle_s=0).complete
        assert reader.leftovers() == []
    values = (json.loads(value or b"{}") for rows in found for value in rows.value)
    assert Counter((row["session_key"], row["j"]) for row in values) == every_row("k-1", "k-22", "k-333")
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone() == (0,)
