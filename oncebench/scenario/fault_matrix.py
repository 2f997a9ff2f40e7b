"""The fault matrix as data: chains of faults, and the cells that run them.

A chain is one run with several faults. Each fault has a batch of its own, so one start of the pipeline serves several
cells of the matrix. Rows that a batch lost or duplicated are charged to that batch's fault.

Promise: every sink, guarantee and variant meets every fault that is possible there. `left_out` returns the reason for
each fault that is not. The anomalies that a guarantee allows are in the verdict's `RULES`; known exceptions are in
`LIMITS`, with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Support
from oncebench.delivery.failpoints import FIRST_BATCH, KILL, POINTS, Fault, parse_fault
from oncebench.delivery.protocols import exactly_once_two_phase, protocol_of
from oncebench.faults.catalogue import why_not_applicable, why_not_here
from oncebench.faults.setups import why_not_in_object_store, why_not_on_master, why_not_with_brokers
from oncebench.scenario.cell import Cell
from oncebench.scenario.fault_check import checked_fault
from oncebench.scenario.supports import all_supports, find_support, installed
from oncebench.scenario.workloads import WORKLOADS, timed_load
from oncebench.sinks.registry import suite_sinks
from pipeline.config import SESSIONS

# The outages of this family last longer than the transaction time-out. Kafka's broker aborts expired transactions every
# 10 s.
TIMEOUT, TIMEOUT_MS = "timeout", 10_000
# The faults of this family take one broker of several away. Stops are longer than the session of a broker, 9 s.
REPLICAS, REPLICAS_BROKERS = "replicas", 3
# The faults of this family cut one broker off from the others. Their brokers reach each other through proxies, so they
# are not part of the family above.
ISOLATION = "isolation"
# More batches, so that rows flow during the last fault of these two families; it takes 20 s or more.
REPLICAS_BATCHES = 40
# The last fault of the other runs on several brokers restarts one broker.
FAILOVER_BATCHES = 10
# Kills in a run of LEADERS. If none of 20 breaks a guarantee, fewer than 14 % do (95 % confidence).
LEADER_KILLS = 20
# Kills of the leader that a step of the protocol needs next, by family and variant. The pipeline is stopped at the
# failpoint while the broker is killed, so the step always meets the dead broker.
LEADERS: Mapping[str, Mapping[str, str]] = {
    # a task has handed over its rows, and waits for their acknowledgements
    "leader-prepare": {
        "two-phase": "before-prepare:kill-output-leader",
        "idempotent": "before-prepare:kill-output-leader",
    },
    # two-phase: all rows are prepared. The new leader has to learn the open transactions before they are committed
    "leader-decide": {
        "two-phase": "before-decision:kill-output-leader",
        "idempotent": "before-decision:kill-output-leader",
    },
    # the next request is EndTxn: of the driver, or of the task
    "leader-commit": {
        "two-phase": "after-decision:kill-transaction-coordinator",
        "idempotent": "after-prepare:kill-transaction-coordinator",
    },
    # two-phase: a task marks when it has its first row, and no failpoint is nearer. idempotent: the next request
    "leader-marker": {
        "two-phase": "batch-start:kill-group-coordinator",
        "idempotent": "before-prepare:kill-group-coordinator",
    },
}
# Faults by family, in the order of a batch. Each fault but the first waits for the second batch with rows after the
# previous fault. In `pairs` the second fault of a pair hits the replay.
CHAINS: Mapping[str, Sequence[str]] = {
    "kills": POINTS,
    "pairs": (
        "mid-write", "after-prepare@replay",
        "after-prepare", "before-decision@replay",
        "before-decision", "after-decision@replay",
        "after-decision", "after-commit@replay",
        "after-commit", "batch-start@replay",
    ),
    "lives": (
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
    "executor": (
        "mid-write:kill-executor",
        "after-prepare:kill-executor",
        "before-decision:kill-executor",
        "after-decision:kill-executor",
        "after-commit:kill-executor",
        "after-prepare:stop-executor:5",
    ),
    "broker": (
        "mid-write:kill-broker",
        "after-prepare:hijack",
        "after-prepare:kill-broker",
        "before-prepare:stop-broker:5",
        "after-decision:hijack",
        "after-decision:kill-broker",
        "mid-commit:stop-broker:5",
        "after-prepare:bounce-broker",
    ),
    REPLICAS: (
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
    ISOLATION: (
        "after-prepare:isolate-output-leader:30",
        "mid-commit:isolate-transaction-coordinator:30",
        "before-decision:isolate-group-coordinator:30",
        "batch-start:isolate-input-leader:30",
    ),
    "postgres": (
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
    "link": (
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
    TIMEOUT: (
        "after-prepare:outage:25",
        "after-decision:outage:25",
    ),
    "disk": (
        "after-prepare:fill-checkpoint:20",
        "mid-write:fill-output:20",
        "after-decision:fill-output:20",
        "mid-write:fill-broker:20",
        "after-decision:fill-broker:20",
    ),
    "checkpoint": (
        "after-commit:cut-offsets",
        "after-commit:empty-offsets",
        "after-commit:lose-offsets",
        "after-commit-log:cut-commits",
        "after-commit-log:empty-commits",
        "after-commit-log:lose-commits",
        "after-commit-log:flip-state",
    ),
    # One fault per run: these affect rows outside the batch in which they act.
    "old-checkpoint": ("after-commit:roll-back",),
    "no-checkpoint": ("after-commit:lose-checkpoint",),
}  # fmt: skip
REPLAY = "@replay"
DEFAULT = Cell("", "", "")
# A family without a chain: SIGKILLs at random times. Three seeds make about 100 kills per row of the matrix.
RANDOM = "random"
RANDOM_KILL = f"{RANDOM}:{KILL}"  # the name of such a kill in a report
RANDOM_KILLS = 34
EVERYDAY = (*CHAINS, RANDOM)
# The others run only if they are named: each of their runs takes ten minutes or more.
FAMILIES = (*EVERYDAY, *LEADERS)
F = TypeVar("F")
LeftOut = dict[str, dict[str, None]]  # reason -> faults, each once and in order
# Each fault needs its own batch and a quiet batch after it. Some faults need a third batch. It comes from the ten small
# warm-up batches: the first fault waits for only six of them.
BATCHES_PER_FAULT = 2
SESSIONS_PER_BATCH = 3  # with three sessions per batch, nearly every batch has rows in both partitions
# At most one batch per second: an attempt then runs four batches on average, also on a fast machine, and every attempt
# finds work. Batches that remain after the last kill only cost time.
RANDOM_TRIGGER_MS, BATCHES_PER_KILL = 1000, 6

# Anomalies that a cell may show beyond its guarantee, with the reason. Keys: (fault, guarantee, variant).
_CLAIMS_GONE = "the claims stand in the checkpoint: with an older one, or none, what was claimed is written once more"
_NOT_ON_DISK = (
    "its COMMIT does not wait for the disk: a PostgreSQL that is killed forgets rows that were read, and gives "
    "their positions to others"
)
_QUERY_GONE = "Delta knows a batch by its query's id, which stood in the checkpoint: a new query writes all once more"
LIMITS: Mapping[tuple[str, str, str], Mapping[str, str]] = {
    ("kill-postgres", AT_MOST_ONCE, "claim"): {"INCO": _NOT_ON_DISK},
    ("kill-session", AT_MOST_ONCE, "claim"): {"INCO": _NOT_ON_DISK},
    ("roll-back", AT_MOST_ONCE, "claim"): {"DUP": _CLAIMS_GONE},
    ("lose-checkpoint", AT_MOST_ONCE, "claim"): {"DUP": _CLAIMS_GONE},
    ("lose-checkpoint", EXACTLY_ONCE, "native"): {"DUP": _QUERY_GONE},
}
# Kills that must be harmless even under a weaker guarantee, so an anomaly that it allows elsewhere is a finding here.
# Nothing is written or claimed yet, or Spark has recorded the batch as done. Under at-most-once also: all is written.
HARMLESS_POINTS: Mapping[str, frozenset[str]] = {
    AT_MOST_ONCE: frozenset({"batch-start:kill", "after-commit:kill", "after-commit-log:kill"}),
    AT_LEAST_ONCE: frozenset({"batch-start:kill", "after-commit-log:kill"}),
}
# Faults that repeat batches which were already done. Rows of those batches are not charged to another fault.
RETROACTIVE_FAULTS = frozenset({"roll-back", "lose-checkpoint"})


@dataclass(frozen=True)
class Row:
    """A row of the matrix: a sink with one guarantee and variant."""

    sink: str
    support: Support


def rows(sinks: Sequence[str] = ()) -> list[Row]:
    """The rows of these sinks (empty: of all installed sinks), in the order of tables."""
    return [Row(sink, support) for sink, support in all_supports() if sink in (sinks or installed())]


def chain(row: Row, family: str, base: Cell = DEFAULT, ours: frozenset[str] | None = None) -> tuple[str, ...]:
    """The faults of a family that one run of a row has; `base` and `ours`: see `cells`."""
    faults: list[str] = []
    for text, fault in _faults(family, row):
        if _pointless(row, family, fault, base.workload) is None and _impossible(family, fault, base, ours) is None:
            again = text.endswith(REPLAY) or not faults
            faults.append(checked_fault(f"{fault}" if again else f"{fault}@after=2"))
    return tuple(faults)


def left_out(
    chosen: Iterable[Row], families: Sequence[str], base: Cell = DEFAULT, ours: frozenset[str] | None = None
) -> tuple[LeftOut, LeftOut]:
    """The faults that `chain` leaves out of these families, by reason.

    Returns:
        Faults that are pointless in one of these rows or with this workload, and faults that are impossible on this
        machine, or with these brokers, this Spark or this checkpoint.
    """
    no_point: LeftOut = {}
    here: LeftOut = {}
    for row, family in product(chosen, families):
        for _, fault in _faults(family, row):
            if (why := _pointless(row, family, fault, base.workload)) is not None:
                no_point.setdefault(why, {})[str(fault)] = None
            elif (why := _impossible(family, fault, base, ours)) is not None:
                here.setdefault(why, {})[str(fault)] = None
    return no_point, here


def can_be_done(column: str, sink: str, guarantee: str, variant: str, workload: str = SESSIONS) -> bool:
    """Whether a column's fault, or both faults of its pair, make sense in a row.

    Independent of this machine. True also if the column is not a fault, or if the sink does not declare the row or
    cannot be run here: no rule excludes these.
    """
    support = find_support(sink, guarantee, variant)
    if support is None or sink not in suite_sinks():
        return True
    row, home = Row(sink, support), next((family for family in FAMILIES if column in columns(family)), "")
    try:
        faults = [parse_fault(text) for text in column.split(", ")]
    except ValueError:
        return True
    return all(_pointless(row, home, fault, workload) is None for fault in faults)


def _faults(family: str, row: Row) -> Iterator[tuple[str, Fault]]:
    texts = CHAINS.get(family, ())
    if family in LEADERS:
        kill = LEADERS[family].get(row.support.variant)
        texts = () if kill is None else (kill,) * LEADER_KILLS
    return ((text, parse_fault(text.removesuffix(REPLAY))) for text in texts)


def brokers_of(family: str, brokers: int) -> int:
    """The number of brokers of a family's runs if the others have `brokers`."""
    return REPLICAS_BROKERS if family in (REPLICAS, ISOLATION, *LEADERS) else brokers


def _impossible(family: str, fault: Fault, base: Cell, ours: frozenset[str] | None) -> str | None:
    return (
        why_not_here(fault, ours)
        or why_not_with_brokers(fault, brokers_of(family, base.brokers))
        or why_not_on_master(fault, base.spark_text, base.on_cluster, base.on_this_machine)
        or why_not_in_object_store(fault, base.checkpoint)
    )


def _pointless(row: Row, family: str, fault: Fault, workload: str) -> str | None:
    sink = suite_sinks()[row.sink]
    if (why := WORKLOADS[workload].why_not_fault(fault)) is not None:
        return f"with {workload}, it {why}"
    if family == TIMEOUT and not (
        sink.prepared_expire and protocol_of(sink.kind, row.support) is exactly_once_two_phase
    ):
        return f"{row.sink} {row.support.variant} has no transaction that a time-out would abort"
    return why_not_applicable(fault, sink, row.support)


def columns(family: str) -> tuple[str, ...]:
    """The column headings of a family: each fault, or the two faults of a pair."""
    if family == RANDOM:
        return (RANDOM,)
    if family in LEADERS:
        return tuple(dict.fromkeys(LEADERS[family].values()))
    return tuple(named(pair) for pair in paired(CHAINS[family], lambda text: text.endswith(REPLAY)))


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


def cells(
    chosen: Iterable[Row],
    families: Sequence[str],
    base: Cell,
    seeds: Mapping[str, int],
    ours: frozenset[str] | None = None,
) -> list[Cell]:
    """The runs of the matrix, seed by seed.

    A series that is cut short has run every fault once before any fault twice.

    Args:
        base: the rate, brokers, workload, Spark and the other fields that all runs share.
        seeds: the number of runs of each chain, by guarantee. Each run has its own seed.
        ours: the servers that the suite starts for the runs. None: all that they need.
    """
    made: list[Cell] = []
    for row in chosen:
        for family in families:
            faults = chain(row, family, base, ours)
            kills = RANDOM_KILLS if family == RANDOM else 0
            if not faults and not kills:
                continue
            brokers = brokers_of(family, base.brokers)
            timed = WORKLOADS[base.workload].needs_warm_watermark
            load = timed_load(faults, kills) if timed else _load_by_batches(base, family, brokers, faults, kills)
            cell = replace(
                base, sink=row.sink, guarantee=row.support.guarantee, variant=row.support.variant, faults=faults,
                random_kills=kills, brokers=brokers,
                transaction_timeout_ms=TIMEOUT_MS if family == TIMEOUT else base.transaction_timeout_ms, **load,
            )  # fmt: skip
            made += [replace(cell, seed=base.seed + number) for number in range(seeds[row.support.guarantee])]
    return sorted(made, key=lambda cell: cell.seed)


def _load_by_batches(base: Cell, family: str, brokers: int, faults: Sequence[str], kills: int) -> dict[str, Any]:
    """A load of so many limited batches that each fault has its own."""
    own = len(paired(faults, lambda text: "@" not in text))
    batches = FIRST_BATCH + BATCHES_PER_FAULT * own + BATCHES_PER_KILL * kills
    batches += REPLICAS_BATCHES if family in (REPLICAS, ISOLATION) else FAILOVER_BATCHES if brokers > 1 else 0
    return {
        "sessions": batches * SESSIONS_PER_BATCH,
        "max_events_per_batch": SESSIONS_PER_BATCH * EVENTS_PER_SESSION,
        "trigger_ms": RANDOM_TRIGGER_MS if kills else base.trigger_ms,
    }


def seeds_for(exactly_once: int) -> dict[str, int]:
    """The number of runs of each chain, by guarantee; 1 for the weaker guarantees."""
    return {AT_MOST_ONCE: 1, AT_LEAST_ONCE: 1, EXACTLY_ONCE: exactly_once}
