"""A start checks the quarantine's topics and login on the quarantine's own cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql.types import StringType, StructField, StructType

from oncebench.delivery.contract import AT_LEAST_ONCE, SinkKind, Support
from oncebench.delivery.errors import NoKafka, RefusedStart
from oncebench.delivery.quarantine import Quarantine
from oncebench.delivery.topics.check import READ, WRITE
from oncebench.jobs import SqliteSink, query
from oncebench.jobs.start import kafka_must_answer
from tests.unit.delivery.test_columns import MARK
from tests.unit.jobs.test_closed_sinks import ROWS, Counted

BAD = Quarantine("orders-bad", "orders", {"bootstrap.servers": "bad:1", "log_level": 0})
SUPPORTS = (Support(AT_LEAST_ONCE, "acknowledged", "", default=True),)
Checked = list[tuple[str, Any]]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    """The topics that were checked, each with the rights on it."""
    found: Checked = []

    def check(_admin: object, topics: Mapping[str, str], _limit_s: float, rights: Any = (WRITE,)) -> None:
        found.extend((topic, tuple(rights)) for topic in topics)

    monkeypatch.setattr(query, "refuse_unfit", check)
    monkeypatch.setattr(query, "refuse_unfit_quarantine", lambda _admin, topic, _limit_s: found.append((topic, "fit")))
    return found


def test_the_input_topic_must_be_readable(checked: Checked) -> None:
    query._refuse_unfit_quarantine(BAD, "mine")
    assert checked == [("orders", (READ,)), ("orders-bad", "fit")]


def test_a_query_that_reads_no_topic_names_none(checked: Checked) -> None:
    query._refuse_unfit_quarantine(Quarantine("orders-bad", "", BAD.client), "mine")
    assert checked == [("orders-bad", "fit")]


def test_its_own_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(query, "refuse_unfit", silent)
    with pytest.raises(NoKafka, match="Kafka at bad:1 did not answer"), kafka_must_answer("sink:1", "mine"):
        query._refuse_unfit_quarantine(BAD, "mine")


def test_its_own_login_is_tried(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(client: Mapping[str, Any]) -> None:
        raise RefusedStart(f"Kafka at {client['bootstrap.servers']}: wrong password")

    monkeypatch.setattr(query, "refuse_access", refused)
    with pytest.raises(RefusedStart, match="Kafka at bad:1: wrong password"):
        query._refuse_unfit_quarantine(BAD, "mine")
    assert checked == []


@pytest.fixture
def deliver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Delivers rows with these columns besides a key, with a quarantine."""
    monkeypatch.setattr(query, "deliverable", lambda rows, _sink: rows)
    monkeypatch.setattr(query, "find_kind", lambda _: SinkKind("any", SUPPORTS, {}, lambda _: Counted()))
    monkeypatch.setattr(query, "_started", {})

    def delivered(*columns: StructField) -> None:
        schema = StructType([StructField("key", StringType()), *columns])
        rows: Any = SimpleNamespace(**{**vars(ROWS), "schema": schema, "columns": schema.names})
        sink = SqliteSink("out", sink_id="mine")
        query.deliver(rows, sink, guarantee=AT_LEAST_ONCE, checkpoint=tmp_path / "cp", quarantine=BAD)

    return delivered


def test_a_query_without_the_column_is_refused(deliver: Callable[..., None]) -> None:
    with pytest.raises(RefusedStart, match=r"the query has no column 'quarantine'.* or leave out quarantine="):
        deliver()


def test_a_start_checks_its_quarantine(deliver: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RefusedStart("wrong password")

    monkeypatch.setattr(query, "_refuse_unfit_quarantine", refused)
    with pytest.raises(RefusedStart, match="wrong password"):
        deliver(StructField("quarantine", MARK))


def test_the_batches_get_the_rejected_records_and_the_quarantine(
    deliver: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def encoded(rows: Any, _sink: object) -> Any:
        found.append(rows.columns)
        return rows

    class Kept(query.Batches):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            found.append(self._quarantine)

    monkeypatch.setattr(query, "_refuse_unfit_quarantine", lambda *_: None)
    monkeypatch.setattr(query, "deliverable", encoded)
    monkeypatch.setattr(query, "Batches", Kept)
    deliver(StructField("quarantine", MARK))
    assert found == [["key", "quarantine"], BAD]
