"""An input topic that is another one, or has lost records, is never read on without a word."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from oncebench.record.json_lines import read_lines
from oncebench.servers.kafka.broker import KafkaBroker
from tests.pipelines import PARTITIONS, WAIT_S, Fixture, every_row, session
from tests.starts import accepted, catch_up, refusal, start_once
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def create(admin: AdminClient, topic: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
            return
        except KafkaException as error:  # the old one is still being deleted
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def create_again(fixture: Fixture) -> None:
    admin = fixture.lab.kafka.admin()
    admin.delete_topics([fixture.input])[fixture.input].result(30)
    create(admin, fixture.input)
    fixture.connect()


def send(fixture: Fixture, *letters: str) -> None:
    """Two sessions for each letter: 100 records in each partition."""
    for letter in letters:
        fixture.send([*session(f"{letter}-1"), *session(f"{letter}-22")])


def keys(*letters: str) -> list[str]:
    return [f"{letter}-{end}" for letter in letters for end in ("1", "22")]


def delete_all_records(fixture: Fixture) -> None:
    admin = fixture.lab.kafka.admin()
    ends = [TopicPartition(fixture.input, int(p), end) for p, end in fixture.input_ends().items()]
    for deleted in admin.delete_records(ends).values():
        deleted.result(30)


@pytest.mark.slow
def test_an_input_topic_that_was_made_again_is_refused_and_read_from_its_beginning_when_accepted(
    fixture: Fixture, kafka_own: KafkaBroker
) -> None:
    config = fixture.config("exactly-once", "two-phase")
    send(fixture, "a")
    catch_up(fixture, config)
    create_again(fixture)
    fixture.send(session("n-1")[:50])  # fewer records than were read
    assert "input topic" in (said := refusal(fixture, config))
    assert "input/topic_id:" in said
    create_again(fixture)
    send(fixture, "b", "c")  # more records than were read
    said = refusal(fixture, config)
    assert "bootstrap_servers lead to another cluster" in said
    for topic in (fixture.input, fixture.output, fixture.quarantine):
        create(kafka_own.admin(), topic)
    elsewhere = refusal(fixture, replace(config, bootstrap_servers=kafka_own.bootstrap_servers))
    assert "input/cluster:" in elsewhere
    assert fixture.visible() == every_row(*keys("a"))
    accepted(fixture, config, said)
    assert fixture.visible() == every_row(*keys("a", "b", "c"))
    admin = fixture.lab.kafka.admin()
    admin.delete_topics([fixture.input])[fixture.input].result(30)
    wait_for("the topic to be gone", lambda: fixture.input not in admin.list_topics().topics)
    assert "does not exist" in refusal(fixture, config)


@pytest.mark.slow
def test_records_that_were_deleted_unread_are_named_and_left_out_only_when_accepted(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "two-phase")
    send(fixture, "a")
    catch_up(fixture, config)
    send(fixture, "b")
    delete_all_records(fixture)
    send(fixture, "c")
    said = refusal(fixture, config)
    assert said.endswith(": input/0:100..199,input/1:100..199")
    assert "partition 0 lacks offsets 100 to 199 (100 records)" in said
    delete_all_records(fixture)
    send(fixture, "d")
    more = refusal(fixture, config, "--accept-gap", said.rsplit(": ", 1)[1])
    assert more.endswith(": input/0:100..299,input/1:100..299"), "more is lost than was accepted"
    accepted(fixture, config, more)
    assert fixture.visible() == every_row(*keys("a", "d"))
    stale = refusal(fixture, config, "--accept-gap", "input/0:1..2")
    assert "this start found no such loss" in stale


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_an_open_batch_whose_records_are_gone_is_finished_as_it_was_committed(fixture: Fixture, variant: str) -> None:
    config = fixture.config("exactly-once", variant, "after-commit@batch=1")
    send(fixture, "a")
    catch_up(fixture, config)
    send(fixture, "b")
    with start_once(fixture, config) as started:
        assert started.wait(WAIT_S)
    delete_all_records(fixture)
    send(fixture, "c")
    said = refusal(fixture, config)
    accepted(fixture, config, said)
    assert fixture.visible() == every_row(*keys("a", "b", "c"))


@pytest.mark.slow
def test_records_that_are_deleted_while_the_pipeline_runs_end_it_soon_and_are_named(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "two-phase", trigger_ms=10_000)
    send(fixture, "a")
    with start_once(fixture, config) as started:
        wait_for("batch 0", (config.checkpoint / "commits" / "0").exists)
        # Spark's triggers are at whole multiples of the interval: after one, there is time until the next.
        wait_for("the time after a trigger", lambda: time.time() % 10 < 3)
        send(fixture, "b")
        delete_all_records(fixture)
        send(fixture, "c")
        deleted = time.monotonic()
        assert started.wait(WAIT_S)
    assert started.returncode == 2
    assert time.monotonic() - deleted < 60
    said = started.log.read_text().splitlines()
    assert any(
        line.startswith("refused to start: ") and line.endswith("input/0:100..199,input/1:100..199") for line in said
    )
    assert not any(line["kind"] == "stopped" for line in read_lines(config.record / "progress.jsonl").items)


@pytest.mark.slow
def test_an_input_topic_that_is_made_again_while_the_pipeline_runs_ends_it(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "two-phase")
    send(fixture, "a")
    with start_once(fixture, config) as started:
        wait_for("batch 0", (config.checkpoint / "commits" / "0").exists)
        create_again(fixture)
        send(fixture, "b", "c")
        assert started.wait(WAIT_S)
    assert started.returncode == 2
    assert "is not the topic that this checkpoint has read" in started.log.read_text()
