"""Compares at a start what the journal remembers with what input and output have.

Promise: input that was replaced or deleted, and an output that lost batches, refuse the start before the query reads or
writes anything. The operator can accept exactly the loss that the refusal prints (`accept_gap`).

The order of a start: `before_sink` (input, and the output's identity), the sink's own start, `after_sink` (markers),
and `record` when nothing is left that could refuse the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException

from oncebench.delivery.batch import Batch
from oncebench.delivery.contract import EXACTLY_ONCE, WHOLE_BATCH, Mark, Sink, SinkKind
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import Journal
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.marks import Marks, missing_text
from oncebench.delivery.starts.places import INPUT, OUTPUT, Places
from pipeline.checkpoint import newest_finished, open_batch
from pipeline.config import PipelineConfig
from pipeline.progress import Progress
from pipeline.starting import positions
from pipeline.starting.topic import InputTopic

# The variants whose sinks keep a marker for each batch.
MARKED = frozenset({"two-phase", "idempotent"})


class StartChecks:
    """The comparisons of one start, and the notes for the next one.

    Args:
        config: the job's settings.
        kind: the kind of sink.
        journal: of the job's checkpoint.
    """

    def __init__(self, config: PipelineConfig, kind: SinkKind, journal: Journal) -> None:
        self._config, self._kind, self._checkpoint = config, kind, config.checkpoint
        self._gaps = Gaps(journal.folder, config.accept_gap)
        self._places = Places(journal.folder)
        self._marks = Marks(journal.folder)
        self._input = InputTopic(config.kafka_client, config.input_topic)
        self._other_output = False
        self._notes = False

    def before_sink(self, sink: Sink) -> None:
        """Compares input, positions and the output's identity.

        Raises:
            RefusedStart: a difference that is not accepted.
            KafkaException: Kafka does not answer.
        """
        self._check_input()
        found, name = sink.identity(), f"output {self._config.output['output']!r} of sink {self._config.sink!r}"
        self._other_output = self._places.compare(OUTPUT, found, name, self._gaps)

    def after_sink(self, sink: Sink) -> None:
        """Compares the sink's markers with the notes of earlier drivers.

        Raises:
            RefusedStart: markers are missing or too old, and that is not accepted.
        """
        exact = self._config.guarantee == EXACTLY_ONCE and self._config.variant in MARKED
        self._notes = exact and sink.keeps_marks
        finished = newest_finished(self._checkpoint)
        marks = self._marks_of(sink)
        missing = self._marks.missing(marks, finished, None)
        if missing:
            missing = self._marks.missing(marks, finished, sink.forgets_after_s())
        if missing and not self._other_output:
            self._gaps.accept(missing_text(missing), self._older_sink(missing))
        if missing:
            self._marks.note_found(marks, finished)
        self._gaps.refuse_unknown()

    def record(self, sink: Sink, progress: Progress) -> None:
        """Records the identities of input and output, and reports what was accepted."""
        self._places.record(INPUT, self._input.identity())
        sink.make_identity()
        self._places.record(OUTPUT, sink.identity())
        for gap in self._gaps.new:
            progress.write("gap", text=gap.text, batch=gap.batch)

    def note_batch(self, batch: Batch) -> None:
        """Notes the markers of a batch that the sink has committed."""
        if self._notes:
            self._marks.note_batch(batch.id, batch.results, batch.dropped, self._kind.batch_atomic)

    def changed(self, batch: int) -> bool:
        """Whether an accepted loss has changed the input of this batch."""
        return self._gaps.changed(batch)

    def lost_input(self) -> RefusedStart | None:
        """Returns why a query died if its input is gone; None for any other reason."""
        try:
            self._check_input()
        except RefusedStart as lost:
            return lost
        except KafkaException:
            return None
        return None

    def other_input(self) -> RefusedStart | None:
        """Returns the refusal if the input topic is another one than at the start, or gone."""
        try:
            self._places.compare(INPUT, self._input.identity(), self._input_name, self._gaps)
        except RefusedStart as other:
            return other
        except KafkaException:  # the query itself finds out, or the cluster comes back
            return None
        return None

    @property
    def _input_name(self) -> str:
        return f"input topic {self._config.input_topic!r}"

    def _marks_of(self, sink: Sink) -> Mapping[int, Mark]:
        if not self._kind.batch_atomic:
            return sink.marks()
        newest = sink.newest_batch()  # reads no data file
        return {} if newest < 0 else {WHOLE_BATCH: Mark(newest, 0, None)}

    def _check_input(self) -> None:
        at = positions.position(self._checkpoint, self._config.input_topic)
        if at is None and not self._places.known:
            return
        opened = open_batch(self._checkpoint)
        if self._places.compare(INPUT, self._input.identity(), self._input_name, self._gaps, opened):
            if at is not None:
                self._move(positions.from_the_beginning(at, self._input.offsets()))
            self._places.record(INPUT, self._input.identity())
            return
        if at is None:
            return
        there = self._input.offsets()
        ranges = positions.lost(at, there)
        if ranges:
            self._gaps.accept(",".join(map(str, ranges)), self._lost_records(ranges), opened)
            self._move(positions.moved(at, there))

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
            f"{self._config.input_topic!r}. {each}. Retention or somebody deleted them, or the cluster lost them. "
            "The query does not skip them. Restore the records if you can."
        )

    def _older_sink(self, missing: Mapping[int, tuple[int | None, int]]) -> str:
        each = "; ".join(
            f"{'the batch' if p < 0 else f'partition {p}'}: "
            f"{'no marker is there' if there is None else f'the newest batch there is {there}'}, and batch {expected} "
            "was committed"
            for p, (there, expected) in missing.items()
        )
        opened = open_batch(self._checkpoint)
        again = "" if opened is None else f" Batch {opened} is open and is written again if its marker is missing."
        return (
            f"the output of sink_id {self._config.sink_id!r} is older than the checkpoint {self._checkpoint}, or its "
            f"markers were deleted. {each}. Nothing was read or written. Restore the output's newest state, or the "
            "checkpoint with its journal from the time of the output's state. If only the markers are gone, the rows "
            f"are there. Rows that are missing stay missing.{again}"
        )
