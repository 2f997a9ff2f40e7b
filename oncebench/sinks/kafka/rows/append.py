"""Writes rows to a topic without transactions: for at-most-once and at-least-once."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer

from oncebench.delivery.contract import TaskView
from oncebench.delivery.topics.settings import producer_sizes
from oncebench.kafka_access.kept import Settings, settings_of
from oncebench.kafka_repair.addresses import RECOVERY
from oncebench.kafka_repair.addresses import flush as sent_and_answered
from oncebench.sinks.kafka.rows.produce import COMMON, FLUSH_LIMIT_S, Reports, Target, flush, produce_all, refused

_log = logging.getLogger(__name__)
# One per worker process, client settings, topic (which limits the sizes) and kind of acknowledgement. Spark reuses
# worker processes for later batches.
_appenders: dict[tuple[Settings, str, bool], Producer] = {}


@dataclass(frozen=True)
class Appender:
    """Writes without transactions: acks=0 without retries, or acks=all with reports checked."""

    client: Mapping[str, Any]
    target: Target
    acknowledged: bool

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        producer, reports, sent = self._producer(), Reports(), 0
        try:
            sent = produce_all(producer, self.target, rows, reports, task, self.acknowledged)
            task.reach("before-prepare")
            started = time.perf_counter()
            if self.acknowledged:
                flush(producer, sent, reports, self.target, task)
            else:
                sent_and_answered(producer, self.target.bootstrap_servers, FLUSH_LIMIT_S)
        except (KafkaException, SystemError) as error:
            _appenders.pop(self._key, None)
            reports.client_failed(error, producer)
            if reports.error is None:
                raise
            raise refused(reports, self.target, task, sent) from error
        except BaseException:
            _appenders.pop(self._key, None)
            raise
        if reports.error is not None:
            _appenders.pop(self._key, None)
        if reports.acknowledged != sent:  # under acks=0 a report says only that the row left this process
            _log.warning(
                "batch %d, partition %d: %d of %d rows were not sent to topic %s, and at-most-once does not send them "
                "again (first error: %s). Check the topic and the broker.",
                *(task.batch, task.partition, sent - reports.acknowledged, sent, self.target.topic, reports.error),
            )
        prepare = (time.perf_counter() - started) * 1000
        task.reach("after-prepare")
        return {}, {"prepare": prepare}

    def _producer(self) -> Producer:
        settings: dict[str, Any] = {"acks": 0, "retries": 0}
        if self.acknowledged:
            settings = {"acks": "all", "enable.idempotence": True}
        if self._key not in _appenders:
            sizes = producer_sizes(self.target.limits.record_bytes)
            _appenders[self._key] = Producer({**self.client, **sizes, **COMMON, **RECOVERY, **settings})
        return _appenders[self._key]

    @property
    def _key(self) -> tuple[Settings, str, bool]:
        return settings_of(self.client), self.target.topic, self.acknowledged
