"""The families of faults, as data. A new family is one entry.

A chain is one run with several faults of a family. Each fault has a batch of its own, so one start of the pipeline
serves several cells of the matrix. Rows that a batch lost or duplicated are charged to that batch's fault.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from oncebench.delivery.failpoints import KILL, POINTS, parse_fault

REPLAY = "@replay"
RANDOM = "random"
RANDOM_KILL = f"{RANDOM}:{KILL}"  # the name of such a kill in a report
F = TypeVar("F")


@dataclass(frozen=True)
class Family:
    """Faults that one run has, and what this run needs besides.

    Attributes:
        name: the family, as a user types it after `--family`.
        faults: in the order of a batch. Each fault but the first waits for the second batch with rows after the
            previous fault. A fault that ends with REPLAY hits the replay of the previous fault's batch.
        by_variant: the faults of these variants, in place of `faults`.
        random_kills: the number of SIGKILLs at random times.
        brokers: the number of brokers; None: as many as other runs.
        more_batches: the number of batches after the last fault, which takes long.
        timeout_ms: the transaction time-out, which each fault outlasts. Only rows whose sink aborts expired
            transactions have the family. None: the time-out of other runs.
        everyday: whether the family runs if no family is named.
    """

    name: str
    faults: Sequence[str] = ()
    by_variant: Mapping[str, Sequence[str]] = field(default_factory=dict)
    random_kills: int = 0
    brokers: int | None = None
    more_batches: int = 0
    timeout_ms: int | None = None
    everyday: bool = True

    def of(self, variant: str) -> Sequence[str]:
        """The faults of a run of this variant."""
        return self.by_variant.get(variant, self.faults)


# Kafka's broker aborts expired transactions every 10 s.
TIMEOUT_MS = 10_000
# One broker may be away: the smallest cluster that still takes rows with acks=all.
BROKERS = 3
# Rows flow during the last fault, which takes 20 s or more.
REPLICA_BATCHES = 40
# Kills in a run of a leader. If none of 20 breaks a guarantee, fewer than 14 % do (95 % confidence).
LEADER_KILLS = 20
# Three seeds make about 100 kills per row of the matrix.
RANDOM_KILLS = 34


def _leader(name: str, two_phase: str, idempotent: str) -> Family:
    """Kills of the leader that a step of the protocol needs next, by variant.

    The pipeline is stopped at the failpoint while the broker is killed, so the step always meets the dead broker. The
    family runs only if it is named: each of its runs takes ten minutes or more.
    """
    by_variant = {"two-phase": (two_phase,) * LEADER_KILLS, "idempotent": (idempotent,) * LEADER_KILLS}
    return Family(name, by_variant=by_variant, brokers=BROKERS, everyday=False)


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("kills", POINTS),
        Family(
            "pairs",
            (
                "mid-write", "after-prepare@replay",
                "after-prepare", "before-decision@replay",
                "before-decision", "after-decision@replay",
                "after-decision", "after-commit@replay",
                "after-commit", "batch-start@replay",
            ),
        ),
        Family(
            "lives",
            (
                "after-prepare:stop:5",
                "after-decision:end",
                "before-decision:outage:8",
                "after-prepare:zombie",
                "mid-write:kill-worker",
                "mid-commit:zombie",
                "after-prepare:kill-worker",
                "after-decision:repartition",
                "mid-commit:crash-loop",
                "mid-write:stop-worker:5",
            ),
        ),
        Family(
            "executor",
            (
                "mid-write:kill-executor",
                "after-prepare:kill-executor",
                "before-decision:kill-executor",
                "after-decision:kill-executor",
                "after-commit:kill-executor",
                "after-prepare:stop-executor:5",
            ),
        ),
        Family(
            "broker",
            (
                "mid-write:kill-broker",
                "after-prepare:hijack",
                "after-prepare:kill-broker",
                "before-prepare:stop-broker:5",
                "after-decision:hijack",
                "after-decision:kill-broker",
                "mid-commit:stop-broker:5",
                "after-prepare:bounce-broker",
            ),
        ),
        # One broker of several is away. Stops are longer than the session of a broker, 9 s.
        Family(
            "replicas",
            (
                "after-prepare:kill-output-leader",
                "mid-write:stop-output-leader:15",
                "after-decision:bounce-output-leader",
                "mid-commit:kill-transaction-coordinator",
                "after-decision:stop-transaction-coordinator:15",
                "after-prepare:bounce-transaction-coordinator",
                "mid-commit:kill-group-coordinator",
                "before-decision:stop-group-coordinator:15",
                "after-prepare:bounce-group-coordinator",
                "batch-start:kill-input-leader",
                "after-commit:stop-input-leader:15",
                "mid-write:bounce-input-leader",
                "before-prepare:refuse-writes:120",
                "mid-commit:rolling-restart",
            ),
            brokers=BROKERS,
            more_batches=REPLICA_BATCHES,
        ),
        # One broker is cut off from the others. Their brokers reach each other through proxies, so they are not part of
        # the family above.
        Family(
            "isolation",
            (
                "after-prepare:isolate-output-leader:30",
                "mid-commit:isolate-transaction-coordinator:30",
                "before-decision:isolate-group-coordinator:30",
                "batch-start:isolate-input-leader:30",
            ),
            brokers=BROKERS,
            more_batches=REPLICA_BATCHES,
        ),
        Family(
            "postgres",
            (
                "mid-write:kill-session",
                "before-prepare:kill-postgres",
                "after-prepare:kill-postgres",
                "after-decision:kill-session",
                "after-decision:kill-postgres",
                "mid-commit:kill-postgres",
                "mid-write:stop-session:5",
                "after-prepare:stop-postgres:5",
                "after-prepare:bounce-postgres",
            ),
        ),
        Family(
            "link",
            (
                # Cuts come first: after `late-commit`, a cut would lose the commit that is still delayed.
                "after-prepare:cut-link:3",
                "mid-commit:cut-link:3",
                "after-prepare:cut-postgres-link:3",
                "after-decision:cut-postgres-link:3",
                "after-prepare:late-commit:5",
                "before-decision:lose-answer",
                "after-decision:late-commit:5",
                "after-prepare:lose-postgres-answer",
                "before-decision:lose-postgres-answer",
            ),
        ),
        # Outages that last longer than the transaction time-out.
        Family(
            "timeout",
            (
                "after-prepare:outage:25",
                "after-decision:outage:25",
            ),
            timeout_ms=TIMEOUT_MS,
        ),
        Family(
            "disk",
            (
                "after-prepare:fill-checkpoint:20",
                "mid-write:fill-output:20",
                "after-decision:fill-output:20",
                "mid-write:fill-broker:20",
                "after-decision:fill-broker:20",
            ),
        ),
        Family(
            "checkpoint",
            (
                "after-commit:cut-offsets",
                "after-commit:empty-offsets",
                "after-commit:lose-offsets",
                "after-commit-log:cut-commits",
                "after-commit-log:empty-commits",
                "after-commit-log:lose-commits",
                "after-commit-log:flip-state",
            ),
        ),
        # One fault per run: these affect rows outside the batch in which they act.
        Family("old-checkpoint", ("after-commit:roll-back",)),
        Family("no-checkpoint", ("after-commit:lose-checkpoint",)),
        # SIGKILLs at random times.
        Family(RANDOM, random_kills=RANDOM_KILLS),
        # A task has handed over its rows, and waits for their acknowledgements.
        _leader(
            "leader-prepare",
            two_phase="before-prepare:kill-output-leader",
            idempotent="before-prepare:kill-output-leader",
        ),
        # two-phase: all rows are prepared. The new leader has to learn the open transactions before they are committed.
        _leader(
            "leader-decide",
            two_phase="before-decision:kill-output-leader",
            idempotent="before-decision:kill-output-leader",
        ),
        # The next request is EndTxn: of the driver, or of the task.
        _leader(
            "leader-commit",
            two_phase="after-decision:kill-transaction-coordinator",
            idempotent="after-prepare:kill-transaction-coordinator",
        ),
        # two-phase: a task marks when it has its first row, and no failpoint is nearer. idempotent: the next request.
        _leader(
            "leader-marker",
            two_phase="batch-start:kill-group-coordinator",
            idempotent="before-prepare:kill-group-coordinator",
        ),
        # A demonstrator: Kafka itself loses rows, so every cell is a limit.
        Family(
            "unclean-election",
            ("after-commit:unclean-election",),
            brokers=BROKERS,
            more_batches=REPLICA_BATCHES,
            everyday=False,
        ),
    )
}  # fmt: skip
EVERYDAY = tuple(family.name for family in FAMILIES.values() if family.everyday)


@functools.cache
def columns(family: str) -> tuple[str, ...]:
    """The column headings of a family: each fault, or the two faults of a pair.

    Random kills are one column.
    """
    kind = FAMILIES[family]
    if kind.random_kills:
        return (RANDOM,)
    pairs = [pair for faults in (kind.faults, *kind.by_variant.values()) for pair in paired(faults, _in_replay)]
    return tuple(dict.fromkeys(map(named, pairs)))


def named(faults: Sequence[str]) -> str:
    """The heading for a fault and the faults in its replays, without batch conditions."""
    return ", ".join(str(parse_fault(text.removesuffix(REPLAY).split("@")[0])) for text in faults)


def paired(faults: Sequence[F], in_replay: Callable[[F], bool]) -> list[list[F]]:
    """Groups the faults of a run: a fault together with the faults in the replays of its batch."""
    groups: list[list[F]] = []
    for fault in faults:
        if groups and in_replay(fault):
            groups[-1].append(fault)
        else:
            groups.append([fault])
    return groups


def _in_replay(text: str) -> bool:
    return text.endswith(REPLAY)
