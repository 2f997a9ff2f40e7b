"""Deliberately broken Kafka sinks: exactly-once without one detail. Not for use.

Each variant declares the anomaly that it must cause. If a run does not find that anomaly, the suite has a defect.
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
    """Writes a transaction per task without a marker, so a replay cannot find the first write."""
    batch.run(sink.idempotent_writer())
    pass_decision_failpoints(batch)


def without_journal(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """Tasks prepare; the driver commits partition by partition, without a decision on disk.

    Pravega's connector works like this. A crash between two commits leaves some partitions committed, and the
    replay writes all of them again.
    """
    prepared = {written.partition: written.prepared for written in batch.run(sink.prepare_writer()) if written.prepared}
    for point in ("before-decision", "after-decision"):
        batch.failpoint(point)
    commit(batch, sink, prepared)


def taken_as_done(batch: Batch, sink: Sink, journal: Journal, _on_lost: str) -> None:
    """Takes an aborted batch as committed: DSv2 calls abort after a failed commit.

    The sink's start aborts the prepared transactions without a look into the journal. The replay writes nothing.
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
    """Aborts every open transaction at the start, even those that the journal has decided."""

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        del decided
        super().start(support, generation, [])


class NeverFences(KafkaSink):
    """Fences no older driver: publishes no generation and fences no transactional id."""

    def _publish_generation(self, generation: int) -> bool:
        del generation
        return False

    def _fence(self, names: Any) -> None:
        del names

    def _fence_now(self, names: Any) -> None:
        del names

    def _read_marks(self, stable: bool = True) -> dict[int, Mark]:
        del stable  # a stable read would wait for the open transactions of an older driver
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
