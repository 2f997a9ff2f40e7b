"""Compares at a start what the journal remembers with what input and output have.

Promise: input that was replaced or deleted refuses the start before the query reads or writes anything. The operator
can accept exactly the loss that the refusal prints (`accept_gap`). `oncebench.jobs.output` compares the output.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from oncebench.delivery.contract import Sink
from oncebench.delivery.errors import DeliveryFailed, PipelineError, RefusedStart
from oncebench.delivery.journal import Journal
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.places import INPUT, Places
from oncebench.jobs.checkpoint import committed_position, open_batch
from oncebench.jobs.output import OutputChecks, Target
from pipeline.config import PipelineConfig
from pipeline.progress import Progress
from pipeline.starting import positions, stalls
from pipeline.starting.epochs import Epochs
from pipeline.starting.topic import InputTopic

_log = logging.getLogger(__name__)


class StartChecks:
    """The comparisons of one start, and the notes for the next one.

    Args:
        config: the job's settings.
        target: the job's sink.
        journal: of the job's checkpoint.

    Attributes:
        output: the comparisons of the output.
    """

    def __init__(self, config: PipelineConfig, target: Target, journal: Journal) -> None:
        self._config, self._checkpoint = config, config.checkpoint
        self._gaps = Gaps(journal.folder, config.accept_gap)
        self._places = Places(journal.folder)
        self._epochs = Epochs(journal.folder)
        self._stalls = stalls.Stalls()
        self._input = InputTopic(config.kafka_client, config.input_topic)
        self.output = OutputChecks(target, journal, self._gaps, self._places)

    def record(self, sink: Sink, progress: Progress) -> None:
        """Records the identities of input and output, and reports what was accepted."""
        self._places.record(INPUT, self._input.identity())
        self.output.record(sink)
        for gap in self._gaps.new:
            progress.write("gap", text=gap.text, batch=gap.batch)

    def changed(self, batch: int) -> bool:
        """Whether an accepted loss has changed the input of this batch."""
        return self._gaps.changed(batch)

    def lost_input(self) -> RefusedStart | None:
        """Returns why a query died if its input is gone; None for any other reason."""
        try:
            self.check_input()
        except RefusedStart as lost:
            return _of_a_running_job(lost)
        except (KafkaException, KafkaError, DeliveryFailed):  # the failure that ended the query also causes these
            return None
        return None

    def other_input(self) -> RefusedStart | None:
        """Returns the refusal if the input topic is another one than at the start, or gone."""
        try:
            self._places.compare(INPUT, self._input.identity(), self._input_name, self._gaps)
        except RefusedStart as other:
            return _of_a_running_job(other)
        except KafkaException:  # the query itself finds out, or the cluster comes back
            return None
        return None

    def watch_input(self) -> None:
        """Notes what was read with the leaders' epochs, and reports partitions that wait for a transaction.

        Also records the identity of an output that Spark's own writer has made.
        """
        self.output.record_identity()
        with suppress(KafkaException, PipelineError):  # the query itself finds out, or the cluster comes back
            done = committed_position(self._checkpoint, self._config.input_topic)
            if done is None:
                return
            self._epochs.note(done[1], self._input.leader_epochs(done[1]))
            for stall in self._stalls.found(self._input.stable_ends(done[1]), time.monotonic()):
                _log.warning("%s", stalls.text(self._config.input_topic, self._config.bootstrap_servers, stall))

    @property
    def _input_name(self) -> str:
        return f"input topic {self._config.input_topic!r}"

    def check_input(self) -> None:
        """Compares the input's identity, and the positions of the query with the records that are left.

        Raises:
            RefusedStart: a difference that is not accepted.
            KafkaException, kafka.errors.KafkaError: Kafka does not answer.
        """
        at = positions.position(self._checkpoint, self._config.input_topic)
        if at is None and not self._places.known:
            return
        opened = open_batch(self._checkpoint)
        if self._places.compare(INPUT, self._input.identity(), self._input_name, self._gaps, opened):
            if at is not None:
                self._move(positions.from_the_beginning(at, self._input.offsets()))
            self._epochs.forget()
            self._places.record(INPUT, self._input.identity())
            return
        if at is None:
            return
        there = self._input.offsets()
        ranges = positions.lost(at, there)
        cuts = [] if ranges else self._epochs.cut(self._input.end_of_epoch)
        if ranges or cuts:
            self._gaps.accept(",".join(map(str, ranges or cuts)), self._lost_records(ranges or cuts), opened)
            self._move(positions.moved(at, there) if ranges else positions.rewound(at, cuts))
            self._epochs.forget()

    def _move(self, to: positions.Position) -> None:
        positions.move(self._checkpoint, self._config.input_topic, to)

    def _lost_records(self, ranges: list[positions.Range]) -> str:
        each = "; ".join(
            f"partition {gone.partition} lacks offsets {gone.first} to {gone.end - 1} ({gone.end - gone.first} "
            f"records): {gone.why}"
            for gone in ranges
        )
        return (
            f"records that the checkpoint {self._checkpoint} needs are gone from input topic "
            f"{self._config.input_topic!r}, and the query does not skip them: {each}. Retention or somebody deleted "
            "them, or the cluster lost them. Records that were not read can be sent again once the job goes on."
        )


def _of_a_running_job(refusal: RefusedStart) -> RefusedStart:
    """Returns a refusal's text, true for a job that has read and written since its start."""
    return type(refusal)(str(refusal).replace("Nothing was read or written.", "The job stops."))
