"""A start is refused for a topic that does not exist, whatever the sink is.

A typing error creates no topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.lab.lab import Lab
from oncebench.processes.child import tail
from oncebench.servers.kafka.broker import start_kafka
from oncebench.sinks.kafka.markers import Offsets
from tests.pipelines import WAIT_S, Fixture, every_row, session
from tests.starts import catch_up, refusal
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture
def creating(lab: Lab, tmp_path: Path) -> Iterator[Fixture]:
    """Topics on a broker that creates topics when a client asks for them.

    This is Kafka's default.
    """
    with start_kafka(tmp_path / "kafka", settings={"auto.create.topics.enable": "true"}) as broker:
        yield Fixture(replace(lab, kafka=broker), tmp_path)


@pytest.mark.parametrize("sink", ["kafka", pytest.param("files-jsonl", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("field", "use"), [("quarantine_topic", "quarantine"), ("input_topic", "input")])
def test_a_misspelt_topic_is_refused_and_not_created(creating: Fixture, sink: str, field: str, use: str) -> None:
    output = {"output": creating.output if sink == "kafka" else str(creating.folder / "rows")}
    misspelt = f"{creating.quarantine}d"
    creating.send(session("good"))
    config = creating.config("at-least-once", "acknowledged", sink=sink, output=output, **{field: misspelt})
    with creating.pipeline(config) as supervisor:
        supervisor.start()
        child = supervisor.child
        assert child is not None
        wait_for("the refusal", lambda: not child.alive)
        child.kill_session()
        assert child.returncode == 2, tail(child.log)
        assert supervisor.last_words().startswith(f"refused to start: the {use} topic '{misspelt}' does not exist")
    assert misspelt not in creating.lab.kafka.admin().list_topics(timeout=WAIT_S).topics


@pytest.mark.parametrize("variant", ["acknowledged", "two-phase"])
@pytest.mark.slow
def test_an_output_that_is_internal_to_kafka_is_refused_before_it_is_recorded(fixture: Fixture, variant: str) -> None:
    internal = "__consumer_offsets"
    fixture.send(session("good"))
    Offsets({"bootstrap.servers": fixture.lab.kafka.bootstrap_servers}, fixture.output).write("any", 0)  # makes it
    guarantee = "at-least-once" if variant == "acknowledged" else "exactly-once"
    said = refusal(fixture, fixture.config(guarantee, variant, output={"output": internal}))
    assert (
        f"the output topic '{internal}' is internal to Kafka, which keeps its own records there. Name another topic"
        in said
    )
    catch_up(fixture, fixture.config(guarantee, variant))
    assert fixture.visible() == every_row("good")


def test_a_compacted_quarantine_topic_is_refused(fixture: Fixture) -> None:
    compacted = fixture.lab.kafka.fresh_topic("compacted", 1, {"cleanup.policy": "compact,delete"})
    said = refusal(fixture, fixture.config("at-least-once", "acknowledged", quarantine_topic=compacted))
    assert f"the quarantine topic '{compacted}' has cleanup.policy=compact,delete" in said
    assert "--add-config cleanup.policy=delete" in said
