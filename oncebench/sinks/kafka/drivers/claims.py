"""Claims of a driver on its sink_id in the cluster: generation, and batches of at-most-once.

Promise: of two drivers of one sink_id, whose checkpoints are copies, at most one goes on. A newer driver first
publishes its name, then fences producers and reads markers and claims. An older driver's worker first makes its
producer, and reads the newest name before it writes. Under at-most-once, the driver does the same with each batch: it
first notes the batch, then reads the newest name. Whoever is second in such a pair sees the other.

What can go wrong: brokers forget offsets after `offsets.retention.minutes` (7 days by default), also the name of a
driver that has run for longer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from oncebench.delivery.contract import WHOLE_BATCH, Holder, Mark
from oncebench.delivery.errors import AnotherDriver, OlderDriver
from oncebench.delivery.failures.cause import not_claimed
from oncebench.delivery.failures.kafka import named, of_error
from oncebench.sinks.kafka.markers import LIMIT_S, Noted, Offsets, member_of
from oncebench.sinks.kafka.names import Names

_log = logging.getLogger(__name__)


def holder(offsets: Offsets, names: Names, read_marks: Callable[[], Mapping[int, Mark]]) -> Holder:
    """See `Sink.holder`.

    Args:
        offsets: of the output topic.
        names: of this driver.
        read_marks: returns the committed markers.
    """
    published = offsets.read(names.generation_group)  # forgotten after some days, also while its driver runs
    marks = {**read_marks(), **_claimed(offsets.read(names.claim_group))}
    return Holder.of(marks, 0 if published is None else published.number)


def fenced_before(offsets: Offsets, names: Names) -> int:
    """Returns the newest generation up to which every transactional id is fenced; 0: unknown."""
    noted = offsets.read(names.fenced_group)
    return 0 if noted is None else noted.number


def note_fenced(offsets: Offsets, names: Names, generation: int) -> None:
    """Notes that all ids up to a generation are fenced, or not `Empty` (an open decision)."""
    try:
        offsets.write(names.fenced_group, generation)
    except KafkaException as error:  # the next start then fences every id again
        _log.warning("could not note the fenced generation in group %s: %s", names.fenced_group, error)


def stop_if_older(newest: Noted | None, names: Names) -> None:
    """Stops a process whose driver is not the published one.

    Raises:
        AnotherDriver: a driver of this or a newer generation has published its name.
        OlderDriver: an older start has published its generation late, over this driver's; a restart publishes a newer.
    """
    if newest is None or (newest.number <= names.generation and newest.driver == names.driver):
        return
    if newest.number < names.generation:
        raise OlderDriver(
            f"an older start of sink_id {names.sink_id} (generation {newest.number}) has taken it after this one "
            f"(generation {names.generation}), which stops. If another job runs with a copy of the checkpoint, end "
            "that job first. Then start again."
        )
    raise AnotherDriver(
        f"generation {newest.number} of sink_id {names.sink_id} has taken over: a newer start, or `oncebench "
        f"transactions`. This process belongs to generation {names.generation} and stops; if both numbers are "
        "equal, their checkpoints are copies of one. Let only one driver run per sink_id."
    )


def _claimed(noted: Noted | None) -> dict[int, Mark]:
    return {} if noted is None else {WHOLE_BATCH: Mark(noted.number - 1, 0, None, noted.driver)}


def _raise_error(answer: TopicPartition) -> None:
    if answer.error is not None:
        raise KafkaException(answer.error)


class Claims:
    """Batches that a driver claims in the cluster, before it writes them under at-most-once.

    Args:
        client: librdkafka settings of the cluster.
        names: of the driver.
    """

    def __init__(self, client: Mapping[str, Any], names: Names) -> None:
        self._names = names
        self._noting, self._reading = (member_of(client, each) for each in (names.claim_group, names.generation_group))

    def newest(self) -> dict[int, Mark]:
        """Returns the newest claimed batch as a mark."""
        (found,) = self._noting.committed([TopicPartition(self._names.topic, 0)], timeout=LIMIT_S)
        return _claimed(None if found.offset < 0 else Noted(found.offset, found.metadata or ""))

    def put(self, batch: int) -> None:
        """Notes that a batch is claimed.

        The published name is read before, because an overtaken driver must not replace the note of its successor, and
        after, because a successor may have come in between.

        Raises:
            AnotherDriver, OlderDriver: another driver has published its name, see `stop_if_older`.
            DeliveryFailed: the cluster does not answer, or refuses; nothing of the batch was written.
        """
        place = TopicPartition(self._names.topic, 0)
        try:
            stop_if_older(self._published(place), self._names)
            note = json.dumps({"driver": self._names.driver})
            claim = TopicPartition(place.topic, 0, batch + 1, metadata=note)
            (noted,) = self._noting.commit(offsets=[claim], asynchronous=False)
            _raise_error(noted)
            newest = self._published(place)
        except KafkaException as error:
            cause = named(of_error(error), self._names.topic, self._names.sink_id)
            raise not_claimed(cause, f"in the cluster: {error.args[0]}", batch) from error
        stop_if_older(newest, self._names)

    def _published(self, place: TopicPartition) -> Noted | None:
        (newest,) = self._reading.committed([place], timeout=LIMIT_S)
        _raise_error(newest)
        return None if newest.offset < 0 else Noted(newest.offset, newest.metadata or "")

    def close(self) -> None:
        """Closes the connections."""
        self._noting.close()
        self._reading.close()
