"""The delivery guarantees side by side. They differ in the place of their durable mark.

Spark's order for batch N: it writes `offsets/N`, runs the batch, calls the sink, and writes `commits/N`. The batch's
state is committed when its tasks have consumed their rows. After a crash in between, Spark runs N again with the same
input. Therefore the place of the durable mark determines the guarantee. The sink determines how rows are written.

A replay never returns early: rows that are not written are drained. Otherwise Spark would not commit the batch's state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncebench.delivery.batch import Batch
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Sink, SinkKind, Support
from oncebench.delivery.decisions import (
    DROP,
    commit,
    decision,
    first_run,
    partitions_without,
    pass_decision_failpoints,
    prepared_by_partition,
    refuse_later_batch,
    refuse_older_journal,
    report_dropped,
    transaction_lost,
)
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.failures.claimed import claimed
from oncebench.delivery.journal import Journal

# The text is the job's `on_lost`: REWRITE or DROP (`oncebench.delivery.decisions`).
Protocol = Callable[[Batch, Sink, Journal, str], None]


def at_most_once(batch: Batch, sink: Sink, journal: Journal, _on_lost: str) -> None:
    """Claims the batch in journal and sink, then writes it.

    A batch with an earlier claim may have been written already, so it is drained and not written again. An older
    journal may lack a claim that the sink has.
    """
    refuse_later_batch(batch, sink)
    batch.failpoint("before-decision")
    with batch.timed("decide"):
        first_time = journal.claim(batch.id) and sink.newest_batch() < batch.id
        if first_time:
            sink.claim(batch.id)
    batch.failpoint("after-decision")
    if first_time:
        batch.run(claimed(sink.unacknowledged_writer()))
    else:
        batch.drain()
    batch.failpoint("mid-commit")


def at_least_once(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """Writes and waits for every acknowledgement. There is no mark: a replay writes again."""
    batch.run(sink.acknowledged_writer())
    pass_decision_failpoints(batch)


def exactly_once_idempotent(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """Writes rows and marker in one atomic step per partition.

    A replay does not write the partitions that have the marker, because those are committed for good. It first makes
    their rows again and checks that they are the same; only then does it write the other partitions.
    """
    refuse_later_batch(batch, sink)
    done = {p: (mark.rows, mark.digest) for p, mark in sink.marks().items() if mark.batch == batch.id}
    others = partitions_without(sink, done)
    if done:
        batch.drain(done, keep=bool(others))
    if others:
        batch.run(sink.idempotent_writer(), only=others if done else None)
    pass_decision_failpoints(batch)


def exactly_once_two_phase(batch: Batch, sink: Sink, journal: Journal, on_lost: str) -> None:
    """Prepares in every task, makes one durable decision, then commits.

    A replay finishes a decided batch.
    """
    decisions = journal.decisions(batch.id)
    lost = None
    if decisions:
        lost = commit(batch, sink, prepared_by_partition(decisions))
        if not lost or on_lost == DROP:
            report_dropped(batch, lost, on_lost)
            return batch.drain(first_run(decisions))
    else:
        refuse_older_journal(batch, sink, journal)
    # `lost` is None for an undecided batch: every partition is written. Otherwise only the lost partitions are.
    written = batch.run(sink.prepare_writer(), only=lost, expected=first_run(decisions))
    batch.failpoint("before-decision")
    with batch.timed("decide"):
        journal.decide(batch.id, len(decisions), decision(written))
    batch.failpoint("after-decision")
    lost = commit(batch, sink, {each.partition: each.prepared for each in written if each.prepared})
    if lost and on_lost != DROP:
        raise transaction_lost(batch, lost)
    report_dropped(batch, lost, on_lost)
    return None


def native(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """Writes the baseline, with Spark's own writer and no mark of ours; keeps Spark's promise."""
    with batch.timed("run"):
        sink.write_native(batch.native_rows())
    batch.failpoint("after-prepare")
    pass_decision_failpoints(batch)


PROTOCOLS: Mapping[tuple[str, str], Protocol] = {
    (AT_MOST_ONCE, "claim"): at_most_once,
    (AT_LEAST_ONCE, "acknowledged"): at_least_once,
    (AT_LEAST_ONCE, "native"): native,
    (EXACTLY_ONCE, "native"): native,
    (EXACTLY_ONCE, "two-phase"): exactly_once_two_phase,
    (EXACTLY_ONCE, "idempotent"): exactly_once_idempotent,
    # Writes by row id and waits for acknowledgements: a replay overwrites each row with itself.
    (EXACTLY_ONCE, "upsert"): at_least_once,
}


def protocol_of(kind: SinkKind, support: Support) -> Protocol:
    """Returns the protocol with which a kind of sink keeps a supported guarantee."""
    key = (support.guarantee, support.variant)
    return kind.protocols.get(key) or PROTOCOLS[key]


def choose(kind: SinkKind, guarantee: str, variant: str | None) -> Support:
    """Returns a sink kind's declared support for a guarantee.

    Without a named variant it is the guarantee's default variant.

    Raises:
        RefusedStart: the sink does not support the guarantee or the variant.
    """
    for support in kind.supports:
        if support.guarantee == guarantee and (support.variant == variant if variant else support.default):
            return support
    known = ", ".join(f"{support.guarantee}/{support.variant}" for support in kind.supports)
    wanted = f"{guarantee}/{variant}" if variant else guarantee
    raise RefusedStart(f"sink {kind.name} does not support {wanted}; it supports: {known}. Take one of these.")
