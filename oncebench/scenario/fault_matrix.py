"""The fault matrix as data: chains of faults, and the cells that run them.

Promise: every sink, guarantee and variant meets every fault that can be done to it; a chain is one run, in which each
fault has a batch of its own, so that one start of the pipeline serves several cells of the matrix and each fault can
still be charged with what its batch lost and doubled. Of what is left out the reason is known. What a cell may show is
not here but in the verdict's `RULES`; what goes beyond them and is known stands in `LIMITS`, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Support
from oncebench.delivery.failpoints import FIRST_BATCH, KILL, POINTS, Fault, parse_fault
from oncebench.delivery.protocols import exactly_once_two_phase, protocol_of
from oncebench.faults.catalogue import not_here, pointless
from oncebench.scenario.cell import Cell, all_supports, checked_fault, declared
from oncebench.sinks.registry import SINKS, suite_sinks

# An outage that is longer than a server keeps what was prepared; Kafka's broker looks for such transactions every 10 s.
TIMEOUT, TIMEOUT_MS = "timeout", 10_000
# By family, in the order of a batch; each but the first waits for the second batch with rows after the one before it.
# In pairs the second fault comes in the replay.
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
        # Before the others: a cut would lose the commit that is still held back when the next fault comes.
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
    # Each alone: what they do to rows is not confined to the batch in which they act.
    "old-checkpoint": ("after-commit:roll-back",),
    "no-checkpoint": ("after-commit:lose-checkpoint",),
}  # fmt: skip
REPLAY = "@replay"
# Beside the chains: SIGKILLs at times that are drawn at random. Three seeds of them make 100 kills of a row.
RANDOM = "random"
RANDOM_KILL = f"{RANDOM}:{KILL}"  # what a report calls each
RANDOM_KILLS = 34
FAMILIES = (*CHAINS, RANDOM)
F = TypeVar("F")
LeftOut = dict[str, dict[str, None]]  # by the reason the faults, each once and in order
# Of the load, for each fault that has a batch of its own: that one, and a quiet one after it. Some need a third; those
# come from the ten small batches that prime, of which the first fault waits for six only.
BATCHES_PER_FAULT = 2
SESSIONS_PER_BATCH = 3  # so many end in each batch, with rows in both partitions nearly always
# A batch a second and no more, so that a life has time for four on average, on a fast machine too, and none finds no
# work; what is left when the last kill is done only takes time.
RANDOM_TRIGGER_MS, BATCHES_PER_KILL = 1000, 6

# Codes that a cell may show beyond its guarantee, by (nemesis, guarantee, variant), and why.
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
# Where a weaker guarantee has nothing at stake, so that what it allows elsewhere is a finding there: a kill before
# anything was written or claimed, or when Spark knows that the batch is done; and under at-most-once also when all is
# written.
SPARED: Mapping[str, frozenset[str]] = {
    AT_MOST_ONCE: frozenset({"batch-start:kill", "after-commit:kill", "after-commit-log:kill"}),
    AT_LEAST_ONCE: frozenset({"batch-start:kill", "after-commit-log:kill"}),
}
# Nemeses that have batches written again which were done before they came, so that no fault is charged with those rows.
REACHING_BACK = frozenset({"roll-back", "lose-checkpoint"})


@dataclass(frozen=True)
class Row:
    """A row of the matrix."""

    sink: str
    support: Support


def rows(sinks: Sequence[str] = ()) -> list[Row]:
    """Every row of these sinks (empty: of all that miss nothing here), in the order of lists and tables."""
    return [
        Row(sink, support) for sink, support in all_supports() if (sink in sinks if sinks else not SINKS[sink].missing)
    ]


def chain(row: Row, family: str, ours: frozenset[str] | None = None) -> tuple[str, ...]:
    """The faults of a family that can be done to a row, as one run takes them. `ours`: see `why_not`."""
    faults: list[str] = []
    for text, fault in _faults(family):
        if _pointless(row, family, fault) is None and not_here(fault, ours) is None:
            again = text.endswith(REPLAY) or not faults
            faults.append(checked_fault(f"{fault}" if again else f"{fault}@after=2"))
    return tuple(faults)


def left_out(
    chosen: Iterable[Row], families: Sequence[str], ours: frozenset[str] | None = None
) -> tuple[LeftOut, LeftOut]:
    """What `chain` leaves out of these families: faults that have no point in one of these rows, and faults that have
    one and can't be done here."""
    no_point: LeftOut = {}
    here: LeftOut = {}
    for row, family in product(chosen, families):
        for _, fault in _faults(family):
            if (why := _pointless(row, family, fault)) is not None:
                no_point.setdefault(why, {})[str(fault)] = None
            elif (why := not_here(fault, ours)) is not None:
                here.setdefault(why, {})[str(fault)] = None
    return no_point, here


def can_be_done(column: str, sink: str, guarantee: str, variant: str) -> bool:
    """Whether what stands above a column has a point in a row, wherever it is run and whatever this machine has; of a
    pair, both. So has what is no fault, and everything where the sink does not declare that row: nothing says more."""
    support = declared(sink, guarantee, variant)
    if support is None:
        return True
    row, home = Row(sink, support), next((family for family in FAMILIES if column in columns(family)), "")
    try:
        faults = [parse_fault(text) for text in column.split(", ")]
    except ValueError:
        return True
    return all(_pointless(row, home, fault) is None for fault in faults)


def _faults(family: str) -> Iterator[tuple[str, Fault]]:
    return ((text, parse_fault(text.removesuffix(REPLAY))) for text in CHAINS.get(family, ()))


def _pointless(row: Row, family: str, fault: Fault) -> str | None:
    sink = suite_sinks()[row.sink]
    if family == TIMEOUT and not (
        sink.prepared_expire and protocol_of(sink.kind, row.support) is exactly_once_two_phase
    ):
        return f"{row.sink} {row.support.variant} holds nothing that a time-out would abort"
    return pointless(fault, sink, row.support)


def columns(family: str) -> tuple[str, ...]:
    """What stands above the columns of a family: each fault, or the two of a pair, in words of their own."""
    if family == RANDOM:
        return (RANDOM,)
    return tuple(named(pair) for pair in paired(CHAINS[family], lambda text: text.endswith(REPLAY)))


def named(faults: Sequence[str]) -> str:
    """A fault and those in its replays, without the batches that they wait for."""
    return ", ".join(str(parse_fault(text.removesuffix(REPLAY).split("@")[0])) for text in faults)


def paired(faults: Sequence[F], again: Callable[[F], bool]) -> list[list[F]]:
    """The faults of a run, those of one batch and its replays together; `again`: whether one comes in a replay."""
    together: list[list[F]] = []
    for fault in faults:
        if together and again(fault):
            together[-1].append(fault)
        else:
            together.append([fault])
    return together


def cells(
    chosen: Iterable[Row],
    families: Sequence[str],
    base: Cell,
    seeds: Mapping[str, int],
    ours: frozenset[str] | None = None,
) -> list[Cell]:
    """The runs of the matrix, seed by seed: one that is cut short has met every fault before any twice.

    Args:
        base: rate and whatever else all have in common.
        seeds: how many runs of each chain a guarantee gets, each with a seed of its own.
        ours: the servers that the suite starts for the runs; None: all that they need.
    """
    made: list[Cell] = []
    for row in chosen:
        for family in families:
            faults, kills = chain(row, family, ours), RANDOM_KILLS if family == RANDOM else 0
            if not faults and not kills:
                continue
            own = len(paired(faults, lambda text: "@" not in text))
            batches = FIRST_BATCH + BATCHES_PER_FAULT * own + BATCHES_PER_KILL * kills
            cell = replace(
                base, sink=row.sink, guarantee=row.support.guarantee, variant=row.support.variant, faults=faults,
                random_kills=kills, sessions=batches * SESSIONS_PER_BATCH,
                max_events_per_batch=SESSIONS_PER_BATCH * 100,
                trigger_ms=RANDOM_TRIGGER_MS if kills else base.trigger_ms,
                transaction_timeout_ms=TIMEOUT_MS if family == TIMEOUT else base.transaction_timeout_ms,
            )  # fmt: skip
            made += [replace(cell, seed=base.seed + number) for number in range(seeds[row.support.guarantee])]
    return sorted(made, key=lambda cell: cell.seed)


def seeds_for(exactly_once: int) -> dict[str, int]:
    """Runs of each chain: so many under exactly-once, one under the others."""
    return {AT_MOST_ONCE: 1, AT_LEAST_ONCE: 1, EXACTLY_ONCE: exactly_once}
