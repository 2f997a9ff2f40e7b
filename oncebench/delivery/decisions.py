"""The steps of the protocols: decide, commit, and compare a replay with the decision."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from oncebench.delivery import digest
from oncebench.delivery.batch import Batch, Counted
from oncebench.delivery.contract import WHOLE_BATCH, Sink, Written
from oncebench.delivery.errors import CommitRefused, CommitUncertain, DeliveryFailed, RefusedStart, TransactionLost
from oncebench.delivery.journal import Journal

# Treatment of a decided partition whose prepared work is gone: write it again, or leave it out.
REWRITE, DROP = "rewrite", "drop"
_log = logging.getLogger(__name__)


def pass_decision_failpoints(batch: Batch) -> None:
    """Reaches the failpoints around a decision, in a protocol without a decision.

    Every failpoint exists in every protocol.
    """
    for point in ("before-decision", "after-decision", "mid-commit"):
        batch.failpoint(point)


def commit(batch: Batch, sink: Sink, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """Commits the prepared work, and returns the partitions that are lost for good.

    All partitions are committed in one call, unless a fault is asked for at `mid-commit`. A batch with rows in one of
    several partitions does not reach that point, because nothing would be left to commit.
    """
    with batch.timed("commit"):
        parts = sorted(prepared)
        if not batch.asks_for("mid-commit") or len(parts) < min(2, sink.partitions):
            return _commit(batch, sink, prepared)
        # One partition is committed before the others, so that a fault can hit in between.
        lost = _commit(batch, sink, {p: prepared[p] for p in parts[:1]})
        batch.failpoint("mid-commit")
        return lost | _commit(batch, sink, {p: prepared[p] for p in parts[1:]})


def _commit(batch: Batch, sink: Sink, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """Calls `Sink.commit`.

    A DeliveryFailed, such as one of a new connection, would look like an error of an undecided batch.

    Raises:
        CommitUncertain: `Sink.commit` raised it, or a DeliveryFailed that a restart may mend.
        CommitRefused: `Sink.commit` raised it, or a DeliveryFailed that a restart meets again.
    """
    try:
        return sink.commit(batch.id, prepared)
    except DeliveryFailed as error:
        kind = CommitUncertain if error.restart_helps else CommitRefused
        raise kind(
            f"batch {batch.id} is decided, but not committed in full: {error} The replay of a new start finishes it: "
            "start again after that."
        ) from error


def decision(prepared: Sequence[Written]) -> dict[str, Any]:
    """Returns the journal's entry for a decided batch."""
    return {"partitions": [_entry(written) for written in prepared]}


def prepared_by_partition(decisions: list[dict[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Returns each partition's prepared work, from the newest decision that names it."""
    return {
        entry["partition"]: entry["prepared"]
        for decision in decisions
        for entry in decision["partitions"]
        if entry["prepared"]
    }


def first_run(decisions: list[dict[str, Any]]) -> dict[int, Counted]:
    """Returns rows and digest per partition of the batch's first run; empty if it is undecided."""
    if not decisions:
        return {}
    return {
        entry["partition"]: (entry["rows"], digest.from_text(entry["digest"])) for entry in decisions[0]["partitions"]
    }


def partitions_without(sink: Sink, done: Mapping[int, object]) -> set[int]:
    """Returns the partitions without a marker; none if one marker covers the whole batch."""
    return set() if WHOLE_BATCH in done else {p for p in range(sink.partitions) if p not in done}


def refuse_older_journal(batch: Batch, sink: Sink, journal: Journal) -> None:
    """Refuses a batch that the sink holds although the journal has no decision about it.

    Nothing is committed without a decision, so a marker of an undecided batch belongs to another journal.
    """
    there = sorted(p for p, mark in sink.marks().items() if mark.batch >= batch.id)
    if there:
        raise RefusedStart(
            f"batch {batch.id} is not decided in {journal.folder}, an older or another pipeline's journal: the sink "
            f"holds partitions {there} of it or of a later batch. Nothing was written. Restore the newest journal with "
            "its checkpoint or, if it is gone, take a new checkpoint, sink_id and output."
        )


def refuse_later_batch(batch: Batch, sink: Sink) -> None:
    """Refuses a batch that comes before the newest batch of the sink.

    The start has refused a checkpoint that lacks batches of the sink, so this batch belongs to another checkpoint.
    """
    newest = sink.newest_batch()
    if newest > batch.id:
        raise RefusedStart(
            f"this is batch {batch.id}, and the sink holds batch {newest}: the query has another checkpoint than its "
            "journal. Do not set checkpointLocation on the writer. This batch has written nothing."
        )


def transaction_lost(batch: Batch, lost: set[int]) -> TransactionLost:
    """Returns the error for prepared work that was gone before its commit."""
    return TransactionLost(
        f"batch {batch.id}: the prepared work of partitions {sorted(lost)} is gone: its transaction exceeded "
        "its time-out, was fenced or rolled back, or its file was removed. No row is lost: start again, and the replay "
        "writes these partitions anew. If a time-out ends it again, raise transaction_timeout_ms, or set "
        "max_events_per_batch (with deliver: the source's maxOffsetsPerTrigger) for smaller batches."
    )


def report_dropped(batch: Batch, lost: set[int] | None, on_lost: str) -> None:
    """Logs the partitions that are left out, if the job's `on_lost` is `drop`."""
    if lost and on_lost == DROP:
        batch.dropped = sorted(lost)
        _log.error("batch %d: partitions %s are LOST: their transactions were aborted", batch.id, sorted(lost))


def _entry(written: Written) -> dict[str, Any]:
    return {
        "partition": written.partition,
        "rows": written.rows,
        "digest": digest.to_text(written.digest),
        "prepared": written.prepared,
    }
