"""Refuses a start whose input topic is another one, or lacks records that the query needs.

Promise: the check comes before the query reads or writes anything. The operator can accept exactly the loss that the
refusal prints (`accept_gap`); the positions in Spark's checkpoint then move over it.
What can go wrong: a job with `deliver` finds a topic that is made again while its query runs only at the next start.
`python -m pipeline` looks while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.places import INPUT, Places
from oncebench.delivery.stores.choose import Place
from oncebench.jobs.checkpoint import open_batch
from oncebench.jobs.inputs import positions
from oncebench.jobs.inputs.epochs import Epochs
from oncebench.jobs.inputs.topic import InputTopic


@dataclass(frozen=True)
class KafkaInput:
    """The one topic that a query of a job reads.

    Attributes:
        topic: its name.
        client: librdkafka settings of its cluster (`bootstrap.servers` at least).
    """

    topic: str
    client: Mapping[str, Any]


class InputChecks:
    """The comparisons of one start.

    Args:
        checkpoint: the place of Spark's checkpoint.
        name: of the input topic.
        topic: asks Kafka about it.
        journal: the journal's folder.
        gaps: the accepted losses.
        places: the recorded identities.

    Attributes:
        topic: see above.
        epochs: the noted leader epochs.
    """

    def __init__(
        self, checkpoint: Place, name: str, topic: InputTopic, journal: Place, gaps: Gaps, places: Places
    ) -> None:
        self._checkpoint, self._name, self._gaps, self._places = checkpoint, name, gaps, places
        self.topic = topic
        self.epochs = Epochs(journal)

    def record(self) -> None:
        """Records the identity of the input."""
        self._places.record(INPUT, self.topic.identity())

    def is_other(self, batch: int | None = None) -> bool:
        """Returns whether the topic differs from the recorded one, and `accept_gap` accepts that.

        Args:
            batch: the open batch.

        Raises:
            RefusedStart: it is another one, and that is not accepted.
            KafkaException: Kafka does not answer.
        """
        return self._places.compare(INPUT, self.topic.identity(), f"input topic {self._name!r}", self._gaps, batch)

    def check(self) -> None:
        """Compares the input's identity, and the query's positions with the records that are left.

        Raises:
            RefusedStart: a difference that is not accepted.
            KafkaException, kafka.errors.KafkaError: Kafka does not answer.
        """
        at = positions.position(self._checkpoint, self._name)
        if at is None and not self._places.known:
            return
        opened = open_batch(self._checkpoint)
        if self.is_other(opened):
            if at is not None:
                self._move(positions.from_the_beginning(at, self.topic.offsets()))
            self.epochs.forget()
            self.record()
            return
        if at is None:
            return
        there = self.topic.offsets()
        ranges = positions.lost(at, there)
        cuts = [] if ranges else self.epochs.cut(self.topic.end_of_epoch)
        if ranges or cuts:
            self._gaps.accept(",".join(map(str, ranges or cuts)), self._lost_records(ranges or cuts), opened)
            self._move(positions.moved(at, there) if ranges else positions.rewound(at, cuts))
            self.epochs.forget()

    def _move(self, to: positions.Position) -> None:
        positions.move(self._checkpoint, self._name, to)

    def _lost_records(self, ranges: list[positions.Range]) -> str:
        each = "; ".join(
            f"partition {gone.partition} lacks offsets {gone.first} to {gone.end - 1} ({gone.end - gone.first} "
            f"records): {gone.why}"
            for gone in ranges
        )
        return (
            f"records that the checkpoint {self._checkpoint} needs are gone from input topic {self._name!r}, and the "
            f"query does not skip them: {each}. Retention or somebody deleted them, or the cluster lost them. Records "
            "that were not read can be sent again once the job goes on."
        )


def refuse_uncompared(gaps: Gaps, places: Places) -> None:
    """Refuses a start that does not compare its input, if the identity of an input is recorded.

    The query could read another topic under that identity. A later comparison would then take it for one that the
    checkpoint has not read, and read it twice.

    Raises:
        RefusedStart: an identity is recorded, and `accept_gap` does not accept to forget it.
    """
    text = places.differs(INPUT, {})
    if text:
        gaps.accept(
            text,
            "an earlier start has compared the input topic of this checkpoint, and this start has no input=. Nothing "
            "was read or written. Give input= again, so that no other topic is read unnoticed.",
            when="To go on without a comparison",
        )


def forget_input(journal: Place, places: Places) -> None:
    """Forgets the recorded input, after a start that does not compare it."""
    places.forget(INPUT)
    Epochs(journal).forget()


def refuse_other_source(rows: DataFrame, topic: str) -> None:
    """Refuses a query that does not read exactly this topic.

    The positions of such a query would be those of another source.

    Raises:
        RefusedStart: names what the query reads.
    """
    read = _streams(rows)
    if read != [repr(topic)]:
        raise RefusedStart(
            f"input= names the topic {topic!r}, and the query reads {', '.join(read)}. Name the one topic that the "
            "query subscribes to, or leave out input= if it reads anything else."
        )


def _streams(rows: DataFrame) -> list[str]:
    """Returns the topics, or else the kind, of each streaming source of a query.

    The topics are those that the source subscribes to, quoted.
    """
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    found = []
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        kind = leaf.getClass().getSimpleName()
        if leaf.isStreaming() and kind == "StreamingRelationV2":
            topics = leaf.extraOptions().get("subscribe")
            name = f"a source {leaf.sourceName()!r} without the option subscribe"
            found.append(name if topics is None else repr(topics.strip()))  # Spark too takes off the blanks
        elif leaf.isStreaming():
            found.append(f"a source {kind!r}")
    return found
