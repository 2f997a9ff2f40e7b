"""Compares input and output with the journal at a start.

Promise: if input was replaced or deleted, the start is refused before the query reads or writes anything. The operator
can accept exactly the loss that the refusal prints (`accept_gap`). `oncebench.jobs.inputs.checks` compares the input,
and `oncebench.jobs.output` the output.
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
from oncebench.delivery.starts.places import Places
from oncebench.jobs.checkpoint import committed_position
from oncebench.jobs.inputs.checks import InputChecks
from oncebench.jobs.inputs.topic import InputTopic
from oncebench.jobs.output import OutputChecks, Target
from pipeline.config import PipelineConfig
from pipeline.progress import Progress
from pipeline.starting import stalls

_log = logging.getLogger(__name__)


class StartChecks:
    """The comparisons of one start, and the notes for the next one.

    Args:
        config: the job's settings.
        target: the job's sink.
        journal: of the job's checkpoint.

    Attributes:
        input: the comparisons of the input.
        output: the comparisons of the output.
    """

    def __init__(self, config: PipelineConfig, target: Target, journal: Journal) -> None:
        self._config, self._checkpoint = config, config.checkpoint
        self._gaps = Gaps(journal.folder, config.accept_gap)
        self._places = Places(journal.folder)
        self._stalls = stalls.Stalls()
        topic = InputTopic(config.kafka_client, config.input_topic)
        self.input = InputChecks(config.checkpoint, config.input_topic, topic, journal.folder, self._gaps, self._places)
        self.output = OutputChecks(target, journal, self._gaps, self._places)

    def record(self, sink: Sink, progress: Progress) -> None:
        """Records the identities of input and output, and reports what was accepted."""
        self.input.record()
        self.output.record(sink)
        for gap in self._gaps.new:
            progress.write("gap", text=gap.text, batch=gap.batch)

    def changed(self, batch: int) -> bool:
        """Whether an accepted loss has changed the input of this batch."""
        return self._gaps.changed(batch)

    def lost_input(self) -> RefusedStart | None:
        """Returns why a query died if its input is gone; None for any other reason."""
        try:
            self.input.check()
        except RefusedStart as lost:
            return _of_a_running_job(lost)
        except (KafkaException, KafkaError, DeliveryFailed):  # the failure that ended the query also causes these
            return None
        return None

    def other_input(self) -> RefusedStart | None:
        """Returns the refusal if the input topic is another one than at the start, or gone."""
        try:
            self.input.is_other()
        except RefusedStart as other:
            return _of_a_running_job(other)
        except KafkaException:  # the query itself finds out, or the cluster comes back
            return None
        return None

    def watch_input(self) -> None:
        """Notes the positions read and the leaders' epochs, and reports waiting partitions.

        A waiting partition has a transaction that does not end. Also records the identity of an output that Spark's own
        writer has made.
        """
        self.output.record_identity()
        with suppress(KafkaException, PipelineError):  # the query itself finds out, or the cluster comes back
            done = committed_position(self._checkpoint, self._config.input_topic)
            if done is None:
                return
            self.input.epochs.note(done[1], self.input.topic.leader_epochs(done[1]))
            for stall in self._stalls.found(self.input.topic.stable_ends(done[1]), time.monotonic()):
                _log.warning("%s", stalls.text(self._config.input_topic, self._config.bootstrap_servers, stall))


def _of_a_running_job(refusal: RefusedStart) -> RefusedStart:
    """Returns a refusal's text, true for a job that has read and written since its start."""
    return type(refusal)(str(refusal).replace("Nothing was read or written.", "The job stops."))
