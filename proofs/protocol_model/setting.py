"""What a search is about: a protocol with its defences, each of which can be left out, and what may go wrong.

Promise: with every default this is the protocol of the pipeline. A defence that is switched off is one line of the
pipeline left out; `variants.py` says what each absence must show.
"""

from __future__ import annotations

from dataclasses import dataclass

TWO_PHASE, IDEMPOTENT = "two-phase", "idempotent"
AT_LEAST_ONCE, AT_MOST_ONCE = "at-least-once", "at-most-once"


@dataclass(frozen=True)
class Defences:
    """What the protocols do against deaths, older drivers and late requests.

    Attributes:
        marker: a transaction holds a marker of its batch, and a replay looks for it.
        decision: the driver journals a decision before it commits, and a replay looks for it.
        exclusive: a decision that is there is never replaced.
        owner: the driver looks before and after a decision or claim whether it is still the newest.
        fencing: a start publishes its generation and fences the ids of older drivers.
        worker_check: a worker with a new producer looks for a younger generation before it begins.
        spares_decided: a start leaves decided and uncommitted transactions alone.
        fences_finished: a start fences ids of decisions that are committed (they may hold a later batch).
        knows_batches: what a start finds committed is known by batch and id (off: by id alone).
        refuses_younger: a driver that finds a decision of a younger one ends (off: it finishes that one's commits).
        finishes: a replay of a decided batch commits what was prepared (off: takes it as done).
        rewrites: partitions whose decided transaction is lost are written again (off: on_lost=drop).
        retires: an id with an EndTxn in doubt is fenced and never used again.
        claim_first: at-most-once claims before it writes (off: after).
        logs_last: Spark's commit log has a batch once the sink has it (off: as soon as the batch begins).
        numbers: a batch that is run again has the number it had (off: another, of which no marker tells).
        hears: an EndTxn without an answer is asked for again (off: taken for made).
    """

    marker: bool = True
    decision: bool = True
    exclusive: bool = True
    owner: bool = True
    fencing: bool = True
    worker_check: bool = True
    spares_decided: bool = True
    fences_finished: bool = True
    knows_batches: bool = True
    refuses_younger: bool = True
    finishes: bool = True
    rewrites: bool = True
    retires: bool = True
    claim_first: bool = True
    logs_last: bool = True
    numbers: bool = True
    hears: bool = True


@dataclass(frozen=True)
class Bounds:
    """How long a run is and what may happen in it, each at any moment.

    Attributes:
        batches: of the run.
        kills: a driver dies with all its tasks and workers.
        zombies: a second driver is started while the first lives; from then on their steps interleave freely.
        timeouts: the coordinator aborts an open transaction.
        unanswered: an EndTxn whose answer never comes, and which acts at any later moment or never.
        resent: an EndTxn that a worker's client library sends twice, unnoticed; the second acts as above.
        republished: a start's publication of its generation that the client sends twice, likewise (0 or 1).
        slow_markers: rows and markers become visible some time after the coordinator has taken the commit.
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
        told = [f"{getattr(self, name)} {name}" for name in names if getattr(self, name)]
        return ", ".join(told + (["slow markers"] if self.slow_markers else []))


@dataclass(frozen=True)
class Setting:
    """One search: protocol, defences, bounds."""

    protocol: str
    defences: Defences = Defences()
    bounds: Bounds = Bounds()

    @property
    def transactional(self) -> bool:
        """Whether tasks write in transactions."""
        return self.protocol in (TWO_PHASE, IDEMPOTENT)
