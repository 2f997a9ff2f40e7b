"""Input that lost its end and has grown again, or that lost its beginning.

An open transaction shows in the ends of the input.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from oncebench.jobs.inputs.topic import InputTopic
from oncebench.lab.lab import Lab
from oncebench.servers.kafka.broker import KafkaBroker
from tests.cut_log import cut_in_half
from tests.pipelines import PARTITIONS, WAIT_S, Fixture, every_row, session
from tests.starts import accepted, catch_up, refusal
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.slow
def test_a_log_that_was_cut_and_has_grown_again_is_refused_and_read_from_the_cut_when_accepted(
    lab: Lab, kafka_own: KafkaBroker, tmp_path: Path
) -> None:
    fixture = Fixture(replace(lab, kafka=kafka_own), tmp_path)
    config = fixture.config("exactly-once", "two-phase")
    for letter in "ab":  # two record batches: the cut leaves the first one
        fixture.send(session(f"{letter}-22"))
    catch_up(fixture, config)
    before = fixture.input_ends()["0"]
    cut_in_half(kafka_own, fixture.input, 0)
    fixture.connect()
    left = fixture.input_ends()["0"]
    assert 0 < left < before
    for letter in "cd":
        fixture.send(session(f"{letter}-22"))
    assert fixture.input_ends()["0"] > before
    said = refusal(fixture, config)
    assert said.endswith(f": input/0:{left}..{before - 1}")
    assert f"its log was cut at {left} after they were read" in said
    accepted(fixture, config, said)
    assert fixture.visible() == every_row("a-22", "b-22", "c-22", "d-22")


@pytest.mark.slow
def test_an_added_partition_that_lost_its_first_records_is_refused_by_name(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "two-phase")
    fixture.send(session("a-1"))
    catch_up(fixture, config)
    admin = fixture.lab.kafka.admin()
    admin.create_partitions([NewPartitions(fixture.input, PARTITIONS + 1)])[fixture.input].result(30)
    fixture.connect()
    fixture.send_to(PARTITIONS, session("b-1"))
    for deleted in admin.delete_records([TopicPartition(fixture.input, PARTITIONS, 100)]).values():
        deleted.result(30)
    fixture.send_to(PARTITIONS, session("c-1"))
    said = refusal(fixture, config)
    assert said.endswith(f": input/{PARTITIONS}:0..99")
    assert "the partition was added, and they were not read" in said
    accepted(fixture, config, said)
    assert fixture.visible() == every_row("a-1", "c-1")


def test_an_open_transaction_shows_in_the_ends_of_the_input(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic("held", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"held", partition=0)
    assert producer.flush(30) == 0
    ends = InputTopic({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    assert ends.stable_ends(["0"]) == {"0": (0, 1)}
    producer.abort_transaction(WAIT_S)
    wait_for("the transaction to have ended", lambda: ends.stable_ends(["0"]) == {"0": (2, 2)})
    assert ends.leader_epochs(["0"])["0"] >= 0
    assert ends.end_of_epoch("0", ends.leader_epochs(["0"])["0"]) == 2
