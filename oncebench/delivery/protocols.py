"""The three guarantees side by side: where the durable mark stands relative to the write.

Spark's order for batch N: `offsets/N` is written, the batch runs and its state commits as the tasks drain, this code
writes to the sink, `commits/N` is written. A death in between runs N again with the same input. So what a guarantee
promises is decided here, by where the mark stands; how rows are written is the sink's affair.

A replay never returns early: rows that are not written are drained, or Spark would not commit the batch's state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oncebench.delivery import digest
from oncebench.delivery.batch import Batch, Counted
from oncebench.delivery.contract import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    WHOLE_BATCH,
    Sink,
    SinkKind,
    Support,
    Written,
)
from oncebench.delivery.errors import RefusedStart, TransactionLost
from oncebench.delivery.journal import Journal

REWRITE, DROP = "rewrite", "drop"
Protocol = Callable[[Batch, Sink, Journal, str], None]
_log = logging.getLogger(__name__)


def at_most_once(batch: Batch, sink: Sink, journal: Journal, _on_lost: str) -> None:
    """Claim, then write. A batch that was claimed before may have been written: it is never written again."""
    batch.failpoint("before-decision")
    with batch.timed("decide"):
        first_time = journal.claim(batch.id)
    batch.failpoint("after-decision")
    if first_time:
        batch.run(sink.unacknowledged_writer())
    else:
        batch.drain()
    batch.failpoint("mid-commit")


def at_least_once(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """Write and wait for every acknowledgement. No mark: a replay writes again."""
    batch.run(sink.acknowledged_writer())
    pass_decision_failpoints(batch)


def exactly_once_idempotent(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """Rows and marker in one atomic step per partition. A replay leaves out the partitions that have the marker, and
    writes the others once it has made the same rows of these: what a task has committed nobody can take back."""
    done = {p: (mark.rows, mark.digest) for p, mark in sink.marks().items() if mark.batch == batch.id}
    others = _others(sink, done)
    if done:
        batch.drain(done, keep=bool(others))
    if others:
        batch.run(sink.idempotent_writer(), only=others if done else None)
    pass_decision_failpoints(batch)


def exactly_once_two_phase(batch: Batch, sink: Sink, journal: Journal, on_lost: str) -> None:
    """Pre-commit in every task, one durable decision, commit. A replay finishes what was decided."""
    decisions = journal.decisions(batch.id)
    lost = None
    if decisions:
        lost = commit(batch, sink, _latest(decisions))
        if not lost or on_lost == DROP:
            _report_dropped(batch, lost, on_lost)
            return batch.drain(_first_run(decisions))
    else:
        _refuse_older_journal(batch, sink, journal)
    prepared = batch.run(sink.prepare_writer(), only=lost, expected=_first_run(decisions))
    batch.failpoint("before-decision")
    with batch.timed("decide"):
        journal.decide(batch.id, len(decisions), decision(prepared))
    batch.failpoint("after-decision")
    lost = commit(batch, sink, {written.partition: written.prepared for written in prepared if written.prepared})
    if lost and on_lost != DROP:
        raise TransactionLost(
            f"batch {batch.id}: what partitions {sorted(lost)} had prepared is gone (its transaction took longer than "
            "its time-out between pre-commit and commit, was fenced, or its file was removed). Nothing is lost: start "
            "again, and the replay writes these partitions anew. If it happens again, raise transaction_timeout_ms, or "
            "set max_events_per_batch, for smaller batches."
        )
    _report_dropped(batch, lost, on_lost)
    return None


def native(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """The baseline: Spark's own writer. No mark of ours: what it promises is what it promises."""
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
    # Write and wait, by row id: a replay writes again, and writes each row over itself.
    (EXACTLY_ONCE, "upsert"): at_least_once,
}


def protocol_of(kind: SinkKind, support: Support) -> Protocol:
    """How a kind of sink keeps a guarantee that it supports."""
    key = (support.guarantee, support.variant)
    return kind.protocols.get(key) or PROTOCOLS[key]


def choose(kind: SinkKind, guarantee: str, variant: str | None) -> Support:
    """The support that a kind of sink declares for a guarantee; its default variant where none is named.

    Raises:
        RefusedStart: the sink does not support it.
    """
    for support in kind.supports:
        if support.guarantee == guarantee and (support.variant == variant if variant else support.default):
            return support
    known = ", ".join(f"{support.guarantee}/{support.variant}" for support in kind.supports)
    wanted = f"{guarantee}/{variant}" if variant else guarantee
    raise RefusedStart(f"sink {kind.name} does not support {wanted}; it supports: {known}")


def pass_decision_failpoints(batch: Batch) -> None:
    """Passes the points that only a decision would tell apart, so that each can be hit under every protocol."""
    for point in ("before-decision", "after-decision", "mid-commit"):
        batch.failpoint(point)


def commit(batch: Batch, sink: Sink, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """Commits what was prepared, and returns the partitions that are lost for good.

    All partitions are committed in one call, unless a fault is asked for at `mid-commit`.
    """
    with batch.timed("commit"):
        if not batch.asks_for("mid-commit"):
            return sink.commit(batch.id, prepared)
        # One partition is committed before the others, so that a death can fall in between.
        parts = sorted(prepared)
        lost = sink.commit(batch.id, {p: prepared[p] for p in parts[:1]})
        batch.failpoint("mid-commit")
        return lost | sink.commit(batch.id, {p: prepared[p] for p in parts[1:]})


def _refuse_older_journal(batch: Batch, sink: Sink, journal: Journal) -> None:
    """Nothing is committed without a decision: a marker of a batch that has none is of a journal that is not here."""
    there = sorted(p for p, mark in sink.marks().items() if mark.batch >= batch.id)
    if there:
        raise RefusedStart(
            f"batch {batch.id} is not decided in {journal.folder}, and the sink holds partitions {there} of it or of a "
            "later one: the journal is older than the sink (a copy that was put back, say), or another's. Nothing was "
            "written. Put the journal back as it was last, with its checkpoint; if it is gone, take a new checkpoint, "
            "sink_id and output."
        )


def _latest(decisions: list[dict[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """What each partition's newest decision prepared."""
    return {
        entry["partition"]: entry["prepared"]
        for decision in decisions
        for entry in decision["partitions"]
        if entry["prepared"]
    }


def _first_run(decisions: list[dict[str, Any]]) -> dict[int, Counted]:
    if not decisions:
        return {}
    return {
        entry["partition"]: (entry["rows"], digest.from_text(entry["digest"])) for entry in decisions[0]["partitions"]
    }


def decision(prepared: Sequence[Written]) -> dict[str, Any]:
    """What the journal keeps of a decided batch."""
    return {"partitions": [_entry(written) for written in prepared]}


def _entry(written: Written) -> dict[str, Any]:
    return {
        "partition": written.partition,
        "rows": written.rows,
        "digest": digest.to_text(written.digest),
        "prepared": written.prepared,
    }


def _others(sink: Sink, done: Mapping[int, object]) -> set[int]:
    return set() if WHOLE_BATCH in done else {p for p in range(sink.partitions) if p not in done}


def _report_dropped(batch: Batch, lost: set[int] | None, on_lost: str) -> None:
    if lost and on_lost == DROP:
        batch.dropped = sorted(lost)
        _log.error("batch %d: partitions %s are LOST: their transactions were aborted", batch.id, sorted(lost))
