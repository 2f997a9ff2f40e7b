"""`oncebench requeue` sends each rejected record back once, as it was.

It reports the records that it leaves.
"""

from __future__ import annotations

import subprocess
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition

from oncebench.cli import cli
from oncebench.delivery.copies import requeue
from oncebench.delivery.copies.letters import Selection, group_of
from oncebench.delivery.copies.requeue import MOST_IN_TRANSACTION, Requeue
from oncebench.delivery.errors import DeliveryFailed
from oncebench.delivery.quarantine import Quarantine
from oncebench.errors import ExitCode, UserError
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.reader import Rows
from tests import COMMAND
from tests.kafka_topics import configure, rejected
from tests.reading import extend

pytestmark = pytest.mark.integration

LIMIT_S = 30
CREATED_MS = 1_700_000_000_000
THEIRS: list[tuple[str, bytes | None]] = [("trace", b"1"), ("oncebench.reason", b"theirs"), ("trace", None)]


class World:
    """A source topic of two partitions, its quarantine, and the command."""

    def __init__(self, kafka: KafkaBroker, source: dict[str, str] | None = None, **quarantine: str) -> None:
        self.kafka = kafka
        self.client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        self.source = kafka.fresh_topic("in", 2, source)
        self.bad = kafka.fresh_topic("bad", 2, quarantine)
        self.quarantine = Quarantine(self.bad, self.source, self.client)
        self.sent = 0

    def send(self, *records: dict[str, Any]) -> None:
        """Sends records to partition 1 of the source, whatever their keys."""
        producer = Producer({**self.client, "message.max.bytes": 20_000_000})
        for record in records:
            producer.produce(self.source, partition=1, timestamp=CREATED_MS + self.sent, **record)
            self.sent += 1
        assert producer.flush(LIMIT_S) == 0

    def reject(self, reason: str, *offsets: int | None) -> None:
        rows = self.rows(self.source)
        place = {(rows.partition[at], rows.offset[at]): at for at in range(len(rows))}
        records = [
            (reason, None if offset is None else 1, offset, *(
                (b"k", b"summary") if offset is None else (rows.key[place[1, offset]], rows.value[place[1, offset]])
            ))
            for offset in offsets
        ]  # fmt: skip
        self.quarantine.copy(rejected(records))
        self.quarantine.flush()

    def rows(self, topic: str) -> Rows:
        found = Rows()
        with closing(KafkaReader(self.kafka.bootstrap_servers, topic)) as reader:
            report = reader.read_to_end(lambda rows: extend(found, rows), settle_s=LIMIT_S)
        assert report.complete or "its first records are gone" in report.note, report.note
        return found

    def returned(self, topic: str | None = None) -> list[bytes | None]:
        """The values in the source after those that were sent first, or in another topic."""
        return self.rows(topic or self.source).value[0 if topic else self.sent :]

    def forget(self, group: str) -> None:
        """Deletes a group with its offsets."""
        admin = self.kafka.admin()
        admin.delete_consumer_groups([group])[group].result(LIMIT_S)

    def requeue(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        places = ["--bootstrap-servers", self.kafka.bootstrap_servers, "--quarantine", self.bad]
        result = CliRunner().invoke(cli, ["requeue", *places, *words])
        if isinstance(result.exception, UserError):
            return result.exception.exit_code, result.stdout, f"{result.stderr}{result.exception}"
        if isinstance(result.exception, DeliveryFailed):  # `main` makes this exit code of it
            return int(ExitCode.ERROR), result.stdout, f"{result.stderr}{result.exception}"
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr


def numbered(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"key": b"k", "value": b"v%d" % at, **more} for at in range(count)]


def test_a_record_comes_back_as_it_was_and_only_once(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(4, headers=THEIRS))
    world.reject("bad", 2, 0)
    code, out, err = world.requeue("--dry-run")
    assert (code, out.splitlines()[1:]) == (0, [f"bad          2  would be sent to {world.source}"])
    assert "nothing was sent" in err
    assert world.returned() == []
    code, out, _ = world.requeue()
    assert (code, out.splitlines()[1:]) == (0, [f"bad          2  sent to {world.source}"])
    rows = world.rows(world.source)
    assert rows.partition[4:] == [1, 1]
    assert rows.value[4:] == [b"v2", b"v0"]
    assert rows.append_ms[4:] == [CREATED_MS + 2, CREATED_MS]
    copies = world.rows(world.bad)
    assert [list(headers) for headers in rows.headers[4:]] == [
        [*THEIRS, ("oncebench.requeued_from", b"%d/%d" % (copies.partition[at], copies.offset[at]))] for at in range(2)
    ]
    world.sent += 2
    world.reject("bad", 3)
    code, out, _ = world.requeue()
    assert (code, world.returned()) == (0, [b"v3"])
    assert out.splitlines()[1:] == [
        "bad          2  passed over: sent before by this group",
        f"bad          1  sent to {world.source}",
    ]
    assert world.requeue("--group", "another")[0] == 0
    assert len(world.returned()) == 1 + 3


def test_a_record_that_is_rejected_again_keeps_one_header_of_ours(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send({"value": b"v"})
    world.reject("bad", 0)
    assert world.requeue()[0] == 0
    again = max(world.rows(world.source).offset)
    world.reject("bad", again, again)  # a replayed batch copies twice
    code, out, _ = world.requeue()
    assert (code, len(world.returned())) == (0, 2)
    assert "1  passed over: the same record twice" in out
    assert [name for name, _ in world.rows(world.source).headers[2]] == ["oncebench.requeued_from"]


def test_a_group_belongs_to_one_selection(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(3))
    world.reject("late", 0)
    world.reject("odd", 1, 2)
    assert world.requeue("--reason", "odd")[0] == 0
    assert sorted(map(bytes, filter(None, world.returned()))) == [b"v1", b"v2"]
    code, _, err = world.requeue()
    assert (code, len(world.returned())) == (2, 2)
    assert f"group '{world.bad}.requeue' marks what another call has sent" in err
    assert "--group" in err
    code, out, _ = world.requeue("--reason", "late", "--group", "late")
    assert (code, out.splitlines()[1:]) == (0, [f"late         1  sent to {world.source}"])


def test_what_cannot_be_sent_as_it_was_is_left_and_named(kafka: KafkaBroker) -> None:
    world = World(kafka, **{"max.message.bytes": "2000"})
    world.send({"value": b"v" * 10_000}, {"value": b"gone"}, {"value": b"whole"})
    world.reject("too-large", 0)
    world.reject("never-ended", None)
    world.reject("odd", 2)
    rows = world.rows(world.source)
    assert rows.value[1] == b"gone"
    admin = kafka.admin()
    records = [("odd", 1, 1, None, b"gone")]
    for answer in admin.delete_records([TopicPartition(world.source, 1, 2)]).values():
        answer.result(LIMIT_S)
    world.quarantine.copy(rejected(records))
    world.quarantine.flush()
    stranger = Producer(world.client)
    stranger.produce(world.bad, b"stranger")
    assert stranger.flush(LIMIT_S) == 0
    for words, sent in ((("--dry-run",), "would be sent"), ((), "sent")):
        code, out, _ = world.requeue(*words)
        assert (code, out.splitlines()) == (1, [
            "reason       copies  outcome",
            "-                 1  left: not a copy of this version",
            "never-ended       1  left: no single record, but a session that never ended",
            "odd               1  left: headers of the original are missing",
            f"odd               1  {sent} to {world.source}",
            "too-large         1  left: cut to fit",
        ])  # fmt: skip
    assert world.rows(world.source).value == [b"whole", b"whole"]
    code, out, _ = world.requeue()
    assert code == 0, "an earlier call has reported the rest"


def test_a_source_topic_that_is_gone_is_named_and_another_can_be_given(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(2))
    world.reject("bad", 0, 1)
    other = kafka.fresh_topic("other", 1)
    admin = kafka.admin()
    admin.delete_topics([world.source])[world.source].result(LIMIT_S)
    code, _, err = world.requeue()
    assert code == 2
    assert f"topic '{world.source}' cannot be used" in err
    assert "Nothing was sent. Create it, or give --to TOPIC." in err
    code, out, _ = world.requeue("--to", other)
    assert (code, out.splitlines()[1:]) == (0, [f"bad          2  sent to {other}"])
    assert world.returned(other) == [b"v0", b"v1"]


def test_a_target_that_refuses_a_record_gets_none_and_a_later_call_sends_all(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(2), {"value": b"v" * 5_000})
    world.reject("bad", 0, 1, 2)
    small = kafka.fresh_topic("small", 1, {"max.message.bytes": "2000"})
    code, _, err = world.requeue("--to", small)
    assert code == 1
    assert f"of {world.bad} does not go to topic {small}: " in err
    assert world.returned(small) == []
    configure(kafka.admin(), small, {"max.message.bytes": 100_000})
    assert world.requeue("--to", small)[0] == 0
    assert sorted(len(value or b"") for value in world.returned(small)) == [2, 2, 5_000]


def test_copies_that_a_topic_refuses_can_be_left(kafka: KafkaBroker) -> None:
    world = World(kafka)
    large = {3, 4, 7}
    world.send(*({"key": b"k", "value": b"v" * (5_000 if at in large else at)} for at in range(10)))
    world.reject("bad", *range(10))
    small = kafka.fresh_topic("small", 2, {"max.message.bytes": "2000"})
    code, _, err = world.requeue("--to", small)
    assert (code, "or give --leave-refused" in err) == (1, True)
    code, out, err = world.requeue("--to", small, "--leave-refused")
    assert (code, out.splitlines()[1:]) == (1, [
        f"bad          3  left: topic {small} refuses it (Broker: Message size too large)",
        f"bad          7  sent to {small}",
    ]), err  # fmt: skip
    assert sorted(len(value or b"") for value in world.returned(small)) == [0, 1, 2, 5, 6, 8, 9]
    world.forget(group_of(world.bad))
    code, out, _ = world.requeue("--to", small)
    assert (code, out.splitlines()[1:]) == (0, ["bad         10  passed over: sent before by this group"])


def test_a_copy_that_is_refused_while_others_are_handed_over_is_named(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(kafka)
    world.send({"value": b"v" * 5_000}, *numbered(1))
    world.reject("bad", 0, 1)
    small = kafka.fresh_topic("small", 1, {"max.message.bytes": "2000"})
    hand_over = requeue._hand_over

    def waits_for_the_answer(producer: Producer, *record: Any, **more: Any) -> None:
        hand_over(producer, *record, **more)
        if len(record[1] or b"") == 5_000:
            producer.flush(LIMIT_S)

    monkeypatch.setattr(requeue, "_hand_over", waits_for_the_answer)
    code, _, err = world.requeue("--to", small)
    assert (code, f"of {world.bad} does not go to topic {small}: " in err) == (1, True), err
    code, out, _ = world.requeue("--to", small, "--leave-refused")
    assert (code, f"bad          1  sent to {small}" in out) == (1, True)


def test_copies_with_a_refused_time_can_be_left(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(3))
    world.reject("bad", 0, 1, 2)
    recent = kafka.fresh_topic("recent", 1, {"message.timestamp.before.max.ms": "3600000"})
    code, out, _ = world.requeue("--to", recent, "--leave-refused")
    assert (code, f"bad          3  left: topic {recent} refuses it" in out) == (1, True)
    assert world.returned(recent) == []


def test_a_record_as_large_as_its_topic_allows_comes_back(kafka: KafkaBroker) -> None:
    world = World(kafka, source={"max.message.bytes": "2000"})
    world.send({"value": b"v" * 1_925})
    world.reject("bad", 0)
    assert world.requeue()[0] == 0
    assert world.returned() == [b"v" * 1_925]
    assert not world.rows(world.source).headers[1], "there is no room for ours"


def test_more_copies_than_a_transaction_holds_all_come_back(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(2 * MOST_IN_TRANSACTION))
    world.reject("bad", *range(2 * MOST_IN_TRANSACTION))
    assert world.requeue()[0] == 0
    assert sorted(map(bytes, filter(None, world.returned()))) == sorted(
        b"v%d" % at for at in range(2 * MOST_IN_TRANSACTION)
    )
    assert "no copies" not in world.requeue()[1]
    assert len(world.returned()) == 2 * MOST_IN_TRANSACTION


def test_a_call_that_dies_early_takes_no_marks_back(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(kafka)
    world.send(*numbered(3))
    world.reject("bad", 0, 1, 2)
    assert world.requeue()[0] == 0
    transaction = Requeue._transaction

    def dies_after_one(*arguments: Any) -> None:
        transaction(*arguments)
        raise DeliveryFailed("dies")

    with monkeypatch.context() as dying, Requeue(world.client, Selection(world.bad, group_of(world.bad))) as call:
        dying.setattr(requeue, "MOST_IN_TRANSACTION", 1)
        dying.setattr(Requeue, "_transaction", dies_after_one)
        call.look()
        with pytest.raises(DeliveryFailed, match="dies"):
            call.send()
    assert world.requeue()[0] == 0
    assert world.returned() == [b"v0", b"v1", b"v2"]


def test_a_group_whose_offsets_have_expired_sends_nothing_again(kafka: KafkaBroker) -> None:
    """Kafka deletes the offsets of a group without members after a week."""
    world = World(kafka)
    world.send(*numbered(3))
    world.reject("bad", 0)
    world.reject("never-ended", None)
    assert world.requeue()[0] == 1
    world.forget(group_of(world.bad))
    code, out, _ = world.requeue("--dry-run")
    assert (code, out.splitlines()[1:]) == (0, ["bad          1  passed over: sent before by this group"])
    code, _, err = world.requeue("--reason", "bad")
    assert (code, "marks what another call has sent" in err) == (2, True)
    world.reject("bad", 1)
    assert world.requeue()[0] == 0
    assert world.returned() == [b"v0", b"v1"]
    world.forget(group_of(world.bad))
    assert world.requeue("--reason", "bad", "--group", "another")[0] == 0
    assert world.returned() == [b"v0", b"v1", b"v0", b"v1"]


def test_a_call_without_new_copies_writes_no_mark(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(1))
    world.reject("bad", 0)
    for _ in range(3):
        assert world.requeue()[0] == 0
    assert len(world.rows(world.bad)) == 2


def test_offsets_without_marks_are_recorded(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions wrote no marks."""
    world = World(kafka)
    world.send(*numbered(2))
    world.reject("bad", 0, 1)
    with monkeypatch.context() as earlier, Requeue(world.client, Selection(world.bad, group_of(world.bad))) as call:
        earlier.setattr(Requeue, "_record_mark", lambda *_: None)
        call.look()
        call.send()
    assert world.requeue()[0] == 0
    world.forget(group_of(world.bad))
    assert world.requeue()[0] == 0
    assert world.returned() == [b"v0", b"v1"]


def test_of_two_calls_at_once_one_sends_and_the_other_says_call_again(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(3))
    world.reject("bad", 0, 1)
    selection = Selection(world.bad, group_of(world.bad))
    with Requeue(world.client, selection) as first, Requeue(world.client, selection) as second:
        for call in (first, second):
            call.look()
        first.send()
        with pytest.raises(DeliveryFailed, match=r"Nothing was sent\. Call again"):
            second.send()
    assert world.returned() == [b"v0", b"v1"]
    world.reject("bad", 2)
    assert world.requeue()[0] == 0
    assert world.returned() == [b"v0", b"v1", b"v2"]


def test_a_wrong_quarantine_topic_and_a_wrong_address_are_named(kafka: KafkaBroker) -> None:
    world = World(kafka)
    assert world.requeue() == (0, "no copies\n", "")
    world.bad = "there-is-none"
    code, _, err = world.requeue()
    assert (code, "Correct the name of the quarantine topic" in err) == (2, True)
    words = ["requeue", "--bootstrap-servers", "127.0.0.1:1", "--quarantine", "x"]
    done = subprocess.run([*COMMAND, *words], capture_output=True, check=False)
    assert done.returncode == 5
