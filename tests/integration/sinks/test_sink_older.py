"""An output that is older than the checkpoint, or lost its markers, is refused.

The sink never continues such an output without an error.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import psycopg
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from psycopg import sql

from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.registry import suite_sinks
from pipeline.config import PipelineConfig
from tests.pipelines import WAIT_S, Fixture, every_row, place, session
from tests.reading import read_all
from tests.starts import accepted, refusal, start_once, wait_for_input

pytestmark = [pytest.mark.integration, pytest.mark.spark]

# Enough sessions that both tasks of a batch have rows.
ENDS = ("1", "22", "333", "4444", "55555", "666666")


def send(fixture: Fixture, letter: str) -> None:
    for end in ENDS:
        fixture.send(session(f"{letter}-{end}"))


def rows_of(*letters: str) -> Counter[tuple[str, int]]:
    return every_row(*(f"{letter}-{end}" for letter in letters for end in ENDS))


def visible(sink: str, target: dict[str, Any]) -> Counter[tuple[str, int]]:
    values = (json.loads(value or b"{}") for value in read_all(suite_sinks()[sink].read(target)).value)
    return Counter((row["session_key"], row["j"]) for row in values)


def write_each(fixture: Fixture, config: PipelineConfig, letters: str) -> None:
    """Runs a pipeline that writes the first letter's sessions in batch 0.

    It writes the sessions of the other letters in later batches.
    """
    send(fixture, letters[0])
    with start_once(fixture, config) as started:
        wait_for_input(fixture, config, started)
        for letter in letters[1:]:
            send(fixture, letter)
            wait_for_input(fixture, config, started)
        started.stop_gently(WAIT_S)


def killed_in_batch_0(fixture: Fixture, config: PipelineConfig) -> None:
    """Batch 0 is in the sink, and Spark's commit log is empty."""
    send(fixture, "a")
    with start_once(fixture, config) as started:
        assert started.wait(WAIT_S)


def goes_on_with_rows_that_are_there(fixture: Fixture, config: PipelineConfig, said: str) -> None:
    """Follows the refusal's advice for a batch whose rows are all in the output.

    The advice is for no other batch.
    """
    assert "Batch 0 is open: check whether its rows are in the output" in said
    assert f"Its input ends at {config.checkpoint}/offsets/0, and begins where the file before ends" in said
    written = next(word for word in said.split() if word.endswith("open/0:written"))
    assert said.endswith(f"{written.removesuffix('written')}missing")
    send(fixture, "b")
    accepted(fixture, config, written)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_no_row_doubles_after_marker_groups_were_reset_and_deleted(fixture: Fixture, variant: str) -> None:
    config = fixture.config("exactly-once", variant, "after-commit@batch=0")
    killed_in_batch_0(fixture, config)
    assert fixture.visible() == rows_of("a")
    admin, groups = fixture.lab.kafka.admin(), [f"{config.sink_id}.marker.{p}" for p in range(2)]
    reset = ConsumerGroupTopicPartitions(groups[0], [TopicPartition(fixture.output, 0, 0)])
    admin.alter_consumer_group_offsets([reset])[groups[0]].result(30)
    for deleted in admin.delete_consumer_groups(groups[1:]).values():
        deleted.result(30)
    said = refusal(fixture, config)
    assert "partition 0: no marker is there, and one was made at the first start; partition 1: no marker" in said
    assert fixture.visible() == rows_of("a")
    goes_on_with_rows_that_are_there(fixture, config, said)
    assert fixture.visible() == rows_of("a", "b")


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_no_row_doubles_after_the_ledger_was_emptied(fixture: Fixture, own: PostgresServer, variant: str) -> None:
    target = suite_sinks()["postgres"].provide(place("emptied", fixture.folder))
    faults = ["after-commit@batch=0"]
    config = fixture.config("exactly-once", variant, *faults, sink="postgres", output=target, sink_id="emptied")
    killed_in_batch_0(fixture, config)
    with psycopg.connect(own.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE oncebench_ledger")
    goes_on_with_rows_that_are_there(fixture, config, refusal(fixture, config))
    assert visible("postgres", target) == rows_of("a", "b")


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_a_postgresql_that_was_set_back_is_refused(fixture: Fixture, own: PostgresServer, variant: str) -> None:
    target = suite_sinks()["postgres"].provide(place("older", fixture.folder))
    config = fixture.config("exactly-once", variant, sink="postgres", output=target, sink_id="older")
    write_each(fixture, config, "abc")
    newest = max(int(path.name) for path in (config.checkpoint / "commits").iterdir() if path.name.isdigit())
    with psycopg.connect(own.dsn, autocommit=True) as connection:  # as a restore does
        connection.execute("DELETE FROM older WHERE session_key LIKE 'b-%' OR session_key LIKE 'c-%'")
        connection.execute("DELETE FROM oncebench_ledger WHERE batch > 0")
    said = refusal(fixture, config)
    assert f"partition 0: the newest batch there is 0, and batch {newest} was committed" in said
    send(fixture, "d")
    accepted(fixture, config, said)
    assert visible("postgres", target) == rows_of("a", "d")
    with psycopg.connect(own.dsn, autocommit=True) as connection:
        statement = sql.SQL(
            "CREATE TABLE copied AS TABLE {table}; DROP TABLE {table}; ALTER TABLE copied RENAME TO {table}"
        )
        connection.execute(statement.format(table=sql.Identifier("older")))
    said = refusal(fixture, config)
    assert "output/table:" in said
    assert "is not the output that this checkpoint has written" in said


@pytest.mark.slow
def test_a_folder_without_its_newest_files_is_refused(fixture: Fixture) -> None:
    target = suite_sinks()["files-jsonl"].provide(place("older", fixture.folder))
    config = fixture.config("exactly-once", "two-phase", sink="files-jsonl", output=target, sink_id="older")
    write_each(fixture, config, "ab")
    folder = fixture.folder / "output"
    for path in folder.glob("part-older-*"):
        if int(path.name.split("-")[2]) > 0:
            path.unlink()
    said = refusal(fixture, config)
    assert "partition 0: the newest batch there is 0" in said
    (folder / ".oncebench-folder.json").unlink()
    assert "output/folder:" in refusal(fixture, config)
    assert visible("files-jsonl", target) == rows_of("a")
