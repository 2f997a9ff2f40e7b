"""Finds, by the journal's decisions, which transactions a commit or an abort may end.

| decision | commit | abort |
|---|---|---|
| commit | yes | no: readers would never get rows of a decided batch |
| undecided | no: a start of the job writes the rows again | yes |
| abort (by the server) | no | yes |
| unknown (no journal) | no: its rows may be incomplete | only if the operator accepts a loss |

Promise: with a journal, neither a commit nor an abort loses or duplicates a row. A decision holds for the transaction
that it names, and not for a later one under the same name: Kafka's producers use their transactional id again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from oncebench.delivery.transactions.left import ENDING, HANGING, LOST, Left

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncebench.delivery.contract import Mark


class Decision(StrEnum):
    """What is decided about a transaction."""

    COMMIT = "commit"
    ABORT = "abort"
    UNDECIDED = "undecided"
    UNKNOWN = "unknown"


# What an operator may ask for.
COMMIT, ABORT = "commit", "abort"
AGAIN = "the server has aborted it: a start of the job writes its rows again"


@dataclass(frozen=True)
class Judged:
    """A transaction with its decision."""

    left: Left
    decision: Decision

    def why_not(self, asked: str, accept_loss: bool = False) -> str | None:
        """Returns why a commit or an abort leaves this transaction as it is; None: it may end it.

        Args:
            asked: COMMIT or ABORT.
            accept_loss: whether an abort without a journal may lose rows.
        """
        if self.left.state == LOST:
            return AGAIN
        if self.left.state == ENDING:
            return f"the server ends it now, by {self.decision}"
        if self.decision is Decision.UNKNOWN and asked == ABORT and accept_loss and self.left.state != HANGING:
            return None
        return _NOT[self.decision, asked]


_NOT: Mapping[tuple[Decision, str], str | None] = {
    (Decision.COMMIT, COMMIT): None,
    (Decision.COMMIT, ABORT): "it is decided to commit it, and an abort would lose its rows",
    (Decision.ABORT, COMMIT): "it is decided to abort it",
    (Decision.ABORT, ABORT): None,
    (Decision.UNDECIDED, COMMIT): "it is undecided: a start of the job writes its rows again, so a commit would "
    "duplicate them",
    (Decision.UNDECIDED, ABORT): None,
    (Decision.UNKNOWN, COMMIT): "nothing shows whether its rows are complete, or are written again",
    (Decision.UNKNOWN, ABORT): "nothing shows whether it is decided to commit it, so an abort may lose its rows",
}


def judge(
    found: Sequence[Left],
    decided: Sequence[Mapping[str, Any]] | None,
    marks: Mapping[int, Mark],
    name_of: Callable[[Mapping[str, Any]], str],
) -> list[Judged]:
    """Returns each transaction with its decision.

    Adds the transactions of the newest decision that the server has aborted.

    Args:
        found: the transactions in the server.
        decided: `Journal.newest_prepared`; None: there is no journal.
        marks: the committed markers, read after `found`. A partition without one counts as committed.
        name_of: see `Transactions`.
    """
    awaited = [each for each in _by_transaction(decided or ()) if each.may_be_open(marks)]
    judged = [_judged(left, None if decided is None else awaited) for left in found]
    there = [left.prepared for left in found]
    missing = [each for each in awaited if each.prepared not in there and each.is_lost(marks)]
    return judged + [
        Judged(Left(name_of(each.prepared), LOST, each.prepared, each.batch, each.partitions), Decision.COMMIT)
        for each in missing
    ]


# What `Journal.newest_prepared` adds to the names of the sink.
_ADDED = frozenset({"batch", "partition", "finished"})


@dataclass(frozen=True)
class _Named:
    """A transaction that a decision names.

    Attributes:
        partitions: those of its rows. Tasks of one worker can share a transaction.
        finished: whether Spark's commit log has the batch. Then it was committed: its markers may have expired since,
            or the server was set back to a state before the commit.
    """

    batch: int
    partitions: tuple[int, ...]
    prepared: Mapping[str, Any]
    finished: bool

    def may_be_open(self, marks: Mapping[int, Mark]) -> bool:
        """Whether no marker shows its commit. A commit may be on its way to its other markers."""
        known = self._marked(marks)
        return (not self.finished or bool(known)) and all(marks[partition].batch < self.batch for partition in known)

    def is_lost(self, marks: Mapping[int, Mark]) -> bool:
        """Whether a transaction that may be open was not committed, if the server does not have it."""
        return not self.finished and bool(self._marked(marks))

    def _marked(self, marks: Mapping[int, Mark]) -> list[int]:
        return [partition for partition in self.partitions if partition in marks]


def _by_transaction(decided: Sequence[Mapping[str, Any]]) -> list[_Named]:
    """Returns the transactions that decisions name, in their order."""
    found: dict[tuple[int, str], _Named] = {}
    for entry in decided:
        prepared = {name: value for name, value in entry.items() if name not in _ADDED}
        each = _Named(int(entry["batch"]), (int(entry["partition"]),), prepared, bool(entry.get("finished")))
        key = each.batch, json.dumps(prepared, sort_keys=True)
        shared = found[key].partitions if key in found else ()
        found[key] = replace(each, partitions=(*shared, *each.partitions))
    return list(found.values())


def _judged(left: Left, awaited: Sequence[_Named] | None) -> Judged:
    if left.outcome is not None:
        return Judged(left, Decision.COMMIT if left.outcome else Decision.ABORT)
    if awaited is None or left.state == HANGING:
        return Judged(left, Decision.UNKNOWN)
    for each in awaited:
        if each.prepared == left.prepared:
            return Judged(replace(left, batch=each.batch, partitions=each.partitions), Decision.COMMIT)
    return Judged(left, Decision.UNDECIDED)
