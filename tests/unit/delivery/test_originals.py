"""A record counts as gone only if Kafka says so for good, not in an answer that passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from oncebench.delivery.copies import originals
from oncebench.delivery.copies.headers import GONE, NOT_READ, OTHER
from oncebench.delivery.copies.originals import Original, Originals, content_of

HEADERS = (("n", b"1"),)
FOUND, NO_RECORD = Original(HEADERS, 5, content=content_of(None, b"v")), Original(missing=GONE)


class Record:
    """A record, or the end of a partition, as the client returns it."""

    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset, self._code = offset, code

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def timestamp(self) -> tuple[int, int]:
        return 1, 5

    def headers(self) -> list[tuple[str, bytes]]:
        return list(HEADERS)

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"


def end(offset: int) -> Record:
    return Record(offset, KafkaError._PARTITION_EOF)


class Client:
    """A consumer of partition 0.

    It describes the topic by these codes in turn, and then returns these records.
    """

    def __init__(self, records: list[Record], described: list[int] | None = None, last: int = 10) -> None:
        self.records, self.described, self.last = records, described or [0], last

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        code = self.described.pop(0) if len(self.described) > 1 else self.described[0]
        partitions = {} if code else {0: None}
        error = KafkaError(code) if code > 0 else None  # a negative one: the partition is not there yet
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=partitions)})

    def poll(self, _timeout: float) -> Record | None:
        return self.records.pop(0) if self.records else None

    def consume(self, _most: int, _timeout: float) -> list[Record]:
        return []

    def assign(self, places: list[Any]) -> None:
        assert len(places) == 1

    def unassign(self) -> None:
        """Nothing is left to read."""

    def get_watermark_offsets(self, _place: Any, timeout: float) -> tuple[int, int]:
        del timeout
        return 0, self.last


def read(monkeypatch: pytest.MonkeyPatch, client: Client, *offsets: int) -> list[Original]:
    monkeypatch.setattr(originals, "Consumer", lambda _settings: client)
    monkeypatch.setattr(originals, "PAUSE_S", 0.0)
    found = Originals({"bootstrap.servers": "localhost:1"}, 1.0).read("in", [(0, at) for at in offsets])
    return [found[0, at] for at in offsets]


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, -1])
def test_a_topic_or_partition_that_a_broker_does_not_know_yet_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    assert read(monkeypatch, Client([Record(3)], [code, code, 0]), 3) == [FOUND]


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, -1])
def test_a_topic_or_partition_that_does_not_come_is_gone(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(originals, "APPEARS_S", 0.05)
    assert read(monkeypatch, Client([], [code]), 3) == [NO_RECORD]


def test_a_missing_right_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client([], [KafkaError.TOPIC_AUTHORIZATION_FAILED, 0])
    assert read(monkeypatch, client, 3) == [Original(missing=NOT_READ)]


def test_an_end_that_a_new_leader_reports_too_low_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, Client([end(3), Record(3), Record(5)]), 3, 5) == [FOUND, FOUND]


def test_what_the_reader_has_passed_at_the_end_is_gone_and_what_is_behind_the_end_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client([Record(3), end(10)])
    assert read(monkeypatch, client, 3, 9, 10, 12) == [FOUND, NO_RECORD, NO_RECORD, NO_RECORD]


@pytest.mark.parametrize("key_and_value", [(None, b"other"), (None, None), (b"", b"v"), (b"v", None)])
def test_an_original_is_not_of_another_record(
    monkeypatch: pytest.MonkeyPatch, key_and_value: tuple[bytes | None, bytes | None]
) -> None:
    (found,) = read(monkeypatch, Client([Record(3)]), 3)
    assert found.of(None, b"v") == found
    assert found.of(*key_and_value) == Original(missing=OTHER)
    assert NO_RECORD.of(*key_and_value) == NO_RECORD
