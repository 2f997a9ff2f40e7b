"""The Kafka sink in the suite: a topic per run, a committed reader and a log reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.kafka_access.access import KafkaAccess
from oncebench.sinks.kafka.log import KafkaLog
from oncebench.sinks.kafka.names import marker_group, transactional_ids
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.kafka.sink import KINDS
from oncebench.sinks.suite import Place, SuiteSink, Traits


def _provide(place: Place) -> dict[str, Any]:
    topic = place.make_topic(f"{place.name}.out")
    return {"output": topic, "sink_id": place.name, "kafka": place.kafka.as_json()}


def _read(target: Mapping[str, Any]) -> KafkaReader:
    return KafkaReader.of(KafkaAccess.of_json(target["kafka"]).client, target["output"], sink_id=target["sink_id"])


def _read_part(target: Mapping[str, Any], part: int, parts: int) -> KafkaReader:
    return KafkaReader.of(KafkaAccess.of_json(target["kafka"]).client, target["output"], part=part, parts=parts)


def _log_of(target: Mapping[str, Any]) -> KafkaLog:
    return KafkaLog(KafkaAccess.of_json(target["kafka"]).client, target["output"], target["sink_id"])


SUITE_SINKS = (
    SuiteSink(
        kind=KINDS[0],
        traits=Traits(ordered=True, has_write_timestamps=True),
        provide=_provide,
        read=_read,
        read_part=_read_part,
        log=_log_of,
        transactional_ids=transactional_ids,
        marker_group=marker_group,
    ),
)
