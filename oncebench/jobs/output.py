"""Compares at a start what the journal remembers of the output with what the sink has.

Promise: an output that was replaced, or that lost batches, refuses the start before the query reads or writes anything.
The operator can accept exactly the loss that the refusal prints (`accept_gap`).

The order of a start: `before_sink` (the output's identity and its writers), the sink's own start, `after_sink`
(markers), and `record` when nothing is left that could refuse the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from oncebench.delivery.batch import Batch
from oncebench.delivery.contract import (
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    NO_BATCH,
    OVERWRITTEN,
    WHOLE_BATCH,
    Mark,
    Sink,
    SinkKind,
    Support,
)
from oncebench.delivery.errors import PipelineError
from oncebench.delivery.journal import Journal
from oncebench.delivery.starts.drivers import Drivers
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.marks import Marks, missing_text
from oncebench.delivery.starts.places import OUTPUT, Places
from oncebench.delivery.stores.choose import Place
from oncebench.jobs.checkpoint import last_batch, newest_finished, open_batch

# The variants whose sinks keep a marker for each batch.
MARKED = frozenset({"two-phase", "idempotent"})
_UNCOMPARED = "If query, settings and input are those of its first run"
_GONE = "If only markers are gone, or the missing rows may stay missing"


@dataclass(frozen=True)
class Target:
    """A sink as one job uses it.

    Attributes:
        kind: the kind of sink.
        support: the guarantee, and the variant by which it is kept.
        sink_id: names this sink in its server.
        name: what people call the output.
        checkpoint: the place of Spark's checkpoint, with the journal in it.
    """

    kind: SinkKind
    support: Support
    sink_id: str
    name: str
    checkpoint: Place


class OutputChecks:
    """The comparisons of one start, and the notes for the next one.

    Args:
        target: the job's sink.
        journal: of the job's checkpoint.
        gaps: the accepted losses.
    """

    def __init__(self, target: Target, journal: Journal, gaps: Gaps, places: Places) -> None:
        self._target, self._gaps, self._places = target, gaps, places
        self._marks = Marks(journal.folder)
        self._decided = journal.newest_decision()
        self._drivers = Drivers(journal)
        self._other_output = False
        self._notes = False
        self._restored: dict[int, int] = {}
        self._unidentified: Sink | None = None  # its output does not exist before the first batch

    def before_sink(self, sink: Sink) -> None:
        """Compares the output's identity, and who has written to it.

        Raises:
            RefusedStart: it is another output, or a job with a copy of the checkpoint has written to it, and that is
                not accepted.
        """
        target = self._target
        name = f"output {target.name!r} of sink {target.kind.name!r}"
        self._other_output = self._places.compare(OUTPUT, sink.identity(), name, self._gaps)
        holder = sink.holder() if self._one_driver else None
        wrote_there = holder is not None and holder.batch > NO_BATCH
        if self._one_driver and (wrote_there or not self._other_output):
            self._drivers.follow(holder, last_batch(target.checkpoint), target.sink_id, self._gaps)

    def after_sink(self, sink: Sink) -> None:
        """Compares the sink's markers with the notes of earlier drivers.

        Raises:
            RefusedStart: markers are missing or too old, and that is not accepted.
        """
        self._notes = self._marked and sink.keeps_marks
        finished = newest_finished(self._target.checkpoint)
        marks = self._marks_of(sink)
        missing = self._marks.missing(marks, finished, None)
        if missing:
            missing = self._marks.missing(marks, finished, sink.forgets_after_s())
        written, uncertain = None, self._uncertain_batch(sink)
        # An output without any marker of this job lacks every earlier batch, as was accepted. An upgraded server, or an
        # older copy, has markers, and they show what it lacks.
        other = self._other_output and all(mark.batch <= NO_BATCH for mark in marks.values())
        if missing and (uncertain is not None or not other):
            written = self._accept_missing(missing, uncertain)
        if missing:
            self._marks.note_found(marks, finished)
        incomparable, batch = sink.incomparable(), open_batch(self._target.checkpoint)
        if incomparable is not None and batch == sink.newest_batch():  # the batch refuses an older checkpoint
            self._gaps.accept(f"open/{batch}:uncompared", incomparable, batch, _UNCOMPARED)
        self._gaps.refuse_unknown()
        if self._notes:
            bare = {p for p in range(sink.partitions) if p not in marks or marks[p].batch == OVERWRITTEN}
            self._restored = dict.fromkeys(bare, NO_BATCH)
            if written is not None:
                self._restored |= dict.fromkeys((*missing, *bare), written)

    def record(self, sink: Sink) -> None:
        """Records the identity of the output, and makes the markers that are missing."""
        sink.make_identity()
        if self._restored:
            sink.restore_marks(self._restored)
            self._marks.note_first({p for p, mark in self._marks_of(sink).items() if mark.batch == NO_BATCH})
        self._identify(sink)

    def record_identity(self) -> None:
        """Records the identity of an output that the start has not found.

        The first batch makes such an output.
        """
        if self._unidentified is not None:
            with suppress(PipelineError):  # the next batch or start reports a damaged output
                self._identify(self._unidentified)

    def _identify(self, sink: Sink) -> None:
        found = sink.identity()
        self._places.record(OUTPUT, found)
        self._unidentified = None if found else sink

    def note_batch(self, batch: Batch) -> None:
        """Notes the markers of a batch that the sink has committed, and the output that it has made."""
        self.record_identity()
        if self._notes:
            self._marks.note_batch(batch.id, batch.results, batch.dropped, self._target.kind.batch_atomic)

    @property
    def _marked(self) -> bool:
        return self._target.support.guarantee == EXACTLY_ONCE and self._target.support.variant in MARKED

    @property
    def _one_driver(self) -> bool:
        """Whether the guarantee forbids duplicates, and rests on one driver per sink_id."""
        return self._marked or self._target.support.guarantee == AT_MOST_ONCE

    def _marks_of(self, sink: Sink) -> Mapping[int, Mark]:
        if not self._target.kind.batch_atomic:
            return sink.marks()
        newest = sink.newest_batch()  # reads no data file
        return {} if newest < 0 else {WHOLE_BATCH: Mark(newest, 0, None)}

    def _uncertain_batch(self, sink: Sink) -> int | None:
        """Returns the open batch if its rows may be in the output; None otherwise.

        The batch is uncertain only if nothing but its markers would show these rows.
        """
        opened = open_batch(self._target.checkpoint)
        perhaps = self._target.support.variant == "idempotent" or opened == self._decided
        return opened if sink.restores_marks and perhaps else None

    def _accept_missing(self, missing: Mapping[int, tuple[int | None, int]], uncertain: int | None) -> int | None:
        """Returns the open batch if the operator has found its rows in the output; None otherwise.

        Raises:
            RefusedStart: nothing is accepted yet.
        """
        text, refusal, checkpoint = missing_text(missing), self._older_sink(missing), self._target.checkpoint
        if uncertain is None:
            opened = open_batch(checkpoint)
            again = "" if opened is None else f" Batch {opened} is open and is written again if its marker is missing."
            self._gaps.accept(text, f"{refusal}{again}", when=_GONE)
            return None
        all_there, none_there = f"{text},open/{uncertain}:written", f"{text},open/{uncertain}:missing"
        ways = {all_there: f"If all rows of batch {uncertain} are there", none_there: "If none is there"}
        look = (
            f"Batch {uncertain} is open: check whether its rows are in the output, because no marker shows it. Its "
            f"input ends at {checkpoint}/offsets/{uncertain}, and begins where the file before ends. If only some of "
            "its rows are there, take a new checkpoint, sink_id and output."
        )
        accepted = self._gaps.choose(f"{refusal} {look}", ways, uncertain)
        return uncertain if accepted == all_there else None

    def _older_sink(self, missing: Mapping[int, tuple[int | None, int]]) -> str:
        each = "; ".join(
            f"{'the batch' if p < 0 else f'partition {p}'}: "
            f"{'no marker is there' if there is None else f'the newest batch there is {there}'}, and "
            f"{'one was made at the first start' if expected < 0 else f'batch {expected} was committed'}"
            for p, (there, expected) in missing.items()
        )
        target = self._target
        return (
            f"the output of sink_id {target.sink_id!r} is older than the checkpoint {target.checkpoint}, or its "
            f"markers were deleted or reset: {each}. Nothing was read or written. Restore the output's newest state, "
            "or the checkpoint with its journal from the time of the output's state."
        )
