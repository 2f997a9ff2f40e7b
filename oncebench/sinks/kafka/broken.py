"""Kafka, broken on purpose: what becomes of exactly-once when one detail of the protocol is left out.

Each variant declares the anomaly that it must show; a run that does not show it is a finding about the suite. None of
this is for use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oncebench.delivery.contract import EXACTLY_ONCE, Mark, Sink, SinkSettings, Support
from oncebench.delivery.decisions import commit, decision, pass_decision_failpoints
from oncebench.delivery.protocols import exactly_once_idempotent
from oncebench.sinks.kafka.sink import KafkaSink, open_as
from oncebench.sinks.kafka.suite import SUITE_SINKS as _SOUND

if TYPE_CHECKING:
    from oncebench.delivery.batch import Batch
    from oncebench.delivery.journal import Journal


def without_marker(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """A transaction per task, but nothing in it says which batch it was: a replay cannot know that it is there."""
    batch.run(sink.idempotent_writer())
    pass_decision_failpoints(batch)


def without_journal(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """Tasks prepare and the driver commits one after the other, with no decision on disk (as Pravega's connector does).

    A death amid the commits leaves some partitions committed; the replay writes all of them again.
    """
    prepared = {written.partition: written.prepared for written in batch.run(sink.prepare_writer()) if written.prepared}
    for point in ("before-decision", "after-decision"):
        batch.failpoint(point)
    commit(batch, sink, prepared)


def taken_as_done(batch: Batch, sink: Sink, journal: Journal, _on_lost: str) -> None:
    """A decided batch is taken as committed, although an abort came between: DSv2 calls abort after a failed commit.

    The sink's start has aborted what was prepared, without a look into the journal; the replay writes nothing.
    """
    if journal.decisions(batch.id):
        return batch.drain()
    written = batch.run(sink.prepare_writer())
    batch.failpoint("before-decision")
    journal.decide(batch.id, 0, decision(written))
    batch.failpoint("after-decision")
    commit(batch, sink, {w.partition: w.prepared for w in written if w.prepared})
    return None


class AbortsDecided(KafkaSink):
    """Aborts at start whatever is open, also what the journal says is decided."""

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        del decided
        super().start(support, generation, [])


class NeverFences(KafkaSink):
    """Starts beside whoever is there: no generation is published, and no transactional id of an older driver fenced."""

    def _publish_generation(self, generation: int) -> bool:
        del generation
        return False

    def _fence(self, names: Any) -> None:
        del names

    def _fence_now(self, names: Any) -> None:
        del names

    def _read_marks(self, stable: bool = True) -> dict[int, Mark]:
        del stable  # what an older driver has open would have to be waited for
        return super()._read_marks(stable=False)


def _open(settings: SinkSettings) -> KafkaSink:
    return open_as(_CLASSES.get(settings.variant, KafkaSink), settings)


_CLASSES: Mapping[str | None, type[KafkaSink]] = {"abort-after-commit": AbortsDecided, "no-fencing": NeverFences}
SUPPORTS = (
    Support(EXACTLY_ONCE, "no-marker", "a transaction per task without a marker", expected_anomaly="DUP"),
    Support(
        EXACTLY_ONCE,
        "no-journal",
        "the driver commits without a decision",
        expected_anomaly="DUP",
        triggering_faults=("mid-commit",),
    ),
    Support(
        EXACTLY_ONCE,
        "abort-after-commit",
        "an abort that does not look into the journal",
        expected_anomaly="LOSS",
        triggering_faults=("after-decision",),
    ),
    Support(
        EXACTLY_ONCE,
        "no-fencing",
        "a transaction per task with a marker, and older drivers may go on",
        expected_anomaly="DUP",
        triggering_faults=("after-prepare:zombie",),
    ),
)
KINDS = (
    replace(
        _SOUND[0].kind,
        name="broken-kafka",
        supports=SUPPORTS,
        open=_open,
        protocols={
            (EXACTLY_ONCE, "no-marker"): without_marker,
            (EXACTLY_ONCE, "no-journal"): without_journal,
            (EXACTLY_ONCE, "abort-after-commit"): taken_as_done,
            (EXACTLY_ONCE, "no-fencing"): exactly_once_idempotent,
        },
    ),
)
SUITE_SINKS = (replace(_SOUND[0], kind=KINDS[0]),)
