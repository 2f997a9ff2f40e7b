"""The input of a search: a protocol, its defences and the faults that may occur.

Each defence can be left out.

Promise: with all defaults this is the protocol of the pipeline. A defence that is switched off stands for one line of
code left out. `variants.py` lists the anomaly that each absence must cause.
"""

from __future__ import annotations

from dataclasses import dataclass

TWO_PHASE, IDEMPOTENT = "two-phase", "idempotent"
AT_LEAST_ONCE, AT_MOST_ONCE = "at-least-once", "at-most-once"


@dataclass(frozen=True)
class Defences:
    """The defences of the protocols against deaths, older drivers and late requests.

    Attributes:
        marker: a transaction holds a marker of its batch, and a replay looks for the marker.
        decision: the driver journals a decision before it commits, and a replay looks for the decision.
        exclusive: an existing decision is never replaced.
        owner: the driver checks before and after a decision or claim that it is still the newest.
        fencing: a start publishes its generation and fences the ids of older drivers.
        worker_check: a worker with a new producer checks for a newer generation before it begins.
        spares_decided: a start does not abort decided and uncommitted transactions.
        fences_finished: a start fences the ids of committed decisions, which may hold a later batch.
        done_by_batch: commits that a start finds finished are matched by batch and id (off: by id alone).
        refuses_newer: a driver that finds the decision of a newer driver ends (off: it finishes those commits).
        finishes: a replay of a decided batch commits the prepared transactions (off: treats the batch as done).
        rewrites: partitions whose decided transaction is lost are written again (off: on_lost=drop).
        retires: an id with an EndTxn in doubt is fenced and never used again.
        claim_first: at-most-once claims before it writes (off: after).
        logs_last: a batch enters Spark's commit log after the sink holds it (off: when the batch begins).
        numbers: a replay has the batch number of the first run (off: another number, which no marker has).
        awaits_answer: an EndTxn without an answer is sent again (off: treated as done).
    """

    marker: bool = True
    decision: bool = True
    exclusive: bool = True
    owner: bool = True
    fencing: bool = True
    worker_check: bool = True
    spares_decided: bool = True
    fences_finished: bool = True
    done_by_batch: bool = True
    refuses_newer: bool = True
    finishes: bool = True
    rewrites: bool = True
    retires: bool = True
    claim_first: bool = True
    logs_last: bool = True
    numbers: bool = True
    awaits_answer: bool = True


@dataclass(frozen=True)
class Bounds:
    """The length of a run and its number of faults of each kind.

    Each fault may occur at any moment.

    Attributes:
        batches: batches of the run.
        kills: a driver dies with all its tasks and workers.
        zombies: a second driver starts while the first is alive; then their steps interleave freely.
        timeouts: the coordinator aborts an open transaction.
        unanswered: an EndTxn gets no answer, and takes effect at any later moment or never.
        resent: a worker's client library sends an EndTxn twice, unnoticed; the second one takes effect as above.
        republished: a client sends the publication of a generation twice, with the same effect (0 or 1).
        slow_markers: rows and markers become visible some time after the coordinator accepts the commit.
    """

    batches: int = 3
    kills: int = 2
    zombies: int = 1
    timeouts: int = 0
    unanswered: int = 0
    resent: int = 0
    republished: int = 0
    slow_markers: bool = False

    def __str__(self) -> str:
        names = ("batches", "kills", "zombies", "timeouts", "unanswered", "resent", "republished")
        text = [f"{getattr(self, name)} {name}" for name in names if getattr(self, name)]
        return ", ".join(text + (["slow markers"] if self.slow_markers else []))


@dataclass(frozen=True)
class Setting:
    """One search: protocol, defences, bounds.

    Attributes:
        workers: among which the tasks of a batch are divided. One worker runs them one after the other.
    """

    protocol: str
    defences: Defences = Defences()
    bounds: Bounds = Bounds()
    workers: int = 2

    @property
    def transactional(self) -> bool:
        """Whether tasks write in transactions."""
        return self.protocol in (TWO_PHASE, IDEMPOTENT)
