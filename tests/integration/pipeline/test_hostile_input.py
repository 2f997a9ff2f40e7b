"""Records that are no events never stop the pipeline and never vanish.

Offsets for monitoring decide nothing.
"""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from oncebench.run.attempts.supervisor import Supervisor
from tests.pipelines import Fixture, event, every_row, position, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]

HOSTILE = [
    "quote\"'; DROP TABLE rows; --",
    "\\N",
    "tab\tnew\nline",
    "nul\x00",
    "\N{GRINNING FACE}",
    "\u202eright",
    "../%2e",
]


def not_events(key: str) -> list[tuple[bytes | None, bytes | None]]:
    """One record for each reason that a record has by itself."""
    raw = key.encode()
    good = event(key, 5, "entry_event", 1)
    return [
        (None, good),
        (raw, None),
        (raw, b"x" * 1_000_000),
        (raw, b"not json"),
        (raw, b"\xff\xff"),
        (raw, b"{}"),
        (raw, good.replace(b"entry_event", b"pause_event")),
        (raw, event(key, 200, "entry_event", 1)),
        (b"another key", good),
        (raw, event(key, 5, "end_event", 1)),
    ]


def caught_up(fixture: Fixture, pipeline: Supervisor) -> None:
    ends = fixture.input_ends()
    wait_for("the pipeline to catch up", lambda: position(fixture.folder / "record") == ends, [pipeline])


def test_what_is_no_event_is_set_aside_counted_and_copied_whole(fixture: Fixture) -> None:
    fixture.send(not_events("s-1"))
    fixture.send(session("s-1"))
    fixture.send(session("s-1")[:3])  # after the end
    fixture.send([*session("s-2")[:10], *session("s-2")[4:6], *session("s-2")[10:]])  # repeated
    for key in HOSTILE:
        fixture.send(session(key))
    fixture.send(session("k" * 10_000))
    with fixture.pipeline(fixture.config("exactly-once", "two-phase")) as pipeline:
        pipeline.start()
        caught_up(fixture, pipeline)
        pipeline.stop()
    assert pipeline.restarts == 0
    expected = fixture.expected()
    assert fixture.visible() == every_row("s-1", "s-2", "k" * 10_000, *HOSTILE)
    quarantine = fixture.rows(fixture.quarantine)
    reasons = Counter(dict(headers)["oncebench.reason"] for headers in quarantine.headers)
    assert reasons == {reason.encode(): n for reason, n in expected.invalid.counts().items()}
    assert reasons == {
        b"null-key": 1, b"null-value": 1, b"too-large": 1, b"not-json": 2, b"wrong-fields": 4, b"unknown-type": 1,
        b"after-end": 3, b"repeated-seq": 2,
    }  # fmt: skip
    assert sorted(len(value or b"") for value in quarantine.value)[-1] == 1_000_000
    ours = {f"oncebench.source_{name}" for name in ("topic", "partition", "offset", "timestamp")}
    assert all(ours <= dict(headers).keys() for headers in quarantine.headers)


@pytest.mark.slow
def test_offsets_for_monitoring_are_shown_and_deleting_or_moving_them_changes_nothing(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "two-phase")
    group = config.monitoring_group
    admin = fixture.lab.kafka.admin()

    def shown() -> dict[str, int]:
        asked = ConsumerGroupTopicPartitions(group)
        found = admin.list_consumer_group_offsets([asked])[group].result(30).topic_partitions
        return {str(each.partition): each.offset for each in found}

    fixture.send([*session("m-1"), *session("m-22")[:50]])
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        caught_up(fixture, pipeline)
        wait_for("the position to be shown", lambda: shown() == fixture.input_ends(), [pipeline])
        pipeline.stop()
    moved = [TopicPartition(fixture.input, partition, 1) for partition in range(2)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, moved)])[group].result(30)
    fixture.send([*session("m-22", start=50), *session("m-333")[:50]])
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        caught_up(fixture, pipeline)
        pipeline.stop()
    admin.delete_consumer_groups([group])[group].result(30)
    fixture.send(session("m-333", start=50))
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        caught_up(fixture, pipeline)
        pipeline.stop()
    assert fixture.visible() == every_row("m-1", "m-22", "m-333")
