"""The cells of the fault matrix: one run per row and family of faults.

A run has the faults of the family that are possible there.

Promise: every sink, guarantee and variant meets every fault that is possible there. `left_out` returns the reason for
each fault that is not. The anomalies that a guarantee allows are in the verdict's `RULES`; known exceptions are in
`LIMITS`, with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Support
from oncebench.delivery.failpoints import FIRST_BATCH, Fault, parse_fault
from oncebench.delivery.protocols import exactly_once_two_phase, protocol_of
from oncebench.faults.catalogue import checked_fault, why_not_applicable, why_not_here
from oncebench.faults.setups import why_not_in_setup
from oncebench.scenario.cell import Cell
from oncebench.scenario.matrix.families import FAMILIES, REPLAY, Family, columns, paired
from oncebench.scenario.supports import all_supports, find_support, installed
from oncebench.scenario.workloads import WORKLOADS, timed_load
from oncebench.sinks.registry import suite_sinks
from pipeline.config import SESSIONS

DEFAULT = Cell("", "", "")
LeftOut = dict[str, dict[str, None]]  # reason -> faults, each once and in order
# Each fault needs its own batch and a quiet batch after it. Some faults need a third batch. It comes from the ten small
# warm-up batches: the first fault waits for only six of them.
BATCHES_PER_FAULT = 2
# Three of four batches then have rows in both partitions. A fault at `mid-commit` waits for such a batch.
SESSIONS_PER_BATCH = 3
# The last fault of a run on several brokers restarts one broker.
FAILOVER_BATCHES = 10
# At most one batch per second: an attempt then runs four batches on average, also on a fast machine, and every attempt
# finds work. Batches that remain after the last kill only cost time.
RANDOM_TRIGGER_MS, BATCHES_PER_KILL = 1000, 6


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
    kind = FAMILIES[family]
    for text, fault in _faults(kind, row):
        if _pointless(row, kind, fault, base.workload) is None and _impossible(kind, fault, base, ours) is None:
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
    for row, family in product(chosen, [FAMILIES[name] for name in families]):
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
    home = next((family for name, family in FAMILIES.items() if column in columns(name)), Family(""))
    row = Row(sink, support)
    try:
        faults = [parse_fault(text) for text in column.split(", ")]
    except ValueError:
        return True
    return all(_pointless(row, home, fault, workload) is None for fault in faults)


def _faults(family: Family, row: Row) -> Iterator[tuple[str, Fault]]:
    return ((text, parse_fault(text.removesuffix(REPLAY))) for text in family.of(row.support.variant))


def _impossible(family: Family, fault: Fault, base: Cell, ours: frozenset[str] | None) -> str | None:
    setup = replace(base, brokers=family.brokers or base.brokers)
    return why_not_here(fault, ours) or why_not_in_setup(fault, setup)


def _pointless(row: Row, family: Family, fault: Fault, workload: str) -> str | None:
    sink = suite_sinks()[row.sink]
    if (why := WORKLOADS[workload].why_not_fault(fault)) is not None:
        return f"with {workload}, it {why}"
    expire = sink.kind.timeout_limit and protocol_of(sink.kind, row.support) is exactly_once_two_phase
    if family.timeout_ms is not None and not expire:
        return f"{row.sink} {row.support.variant} has no transaction that a time-out would abort"
    return why_not_applicable(fault, sink, row.support)


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
    for row, family in product(chosen, [FAMILIES[name] for name in families]):
        faults = chain(row, family.name, base, ours)
        if not faults and not family.random_kills:
            continue
        cell = replace(
            base, sink=row.sink, guarantee=row.support.guarantee, variant=row.support.variant, faults=faults,
            random_kills=family.random_kills, brokers=family.brokers or base.brokers,
            transaction_timeout_ms=family.timeout_ms or base.transaction_timeout_ms,
        )  # fmt: skip
        timed = WORKLOADS[base.workload].needs_warm_watermark
        load = timed_load(faults, family.random_kills) if timed else _load_by_batches(cell, family)
        made += [replace(cell, **load, seed=base.seed + number) for number in range(seeds[row.support.guarantee])]
    return sorted(made, key=lambda cell: cell.seed)


def _load_by_batches(cell: Cell, family: Family) -> dict[str, Any]:
    """A load of so many limited batches that each fault has its own."""
    own = len(paired(cell.faults, lambda text: "@" not in text))
    batches = FIRST_BATCH + BATCHES_PER_FAULT * own + BATCHES_PER_KILL * cell.random_kills
    batches += family.more_batches or (FAILOVER_BATCHES if cell.brokers > 1 else 0)
    return {
        "sessions": batches * SESSIONS_PER_BATCH,
        "max_events_per_batch": SESSIONS_PER_BATCH * EVENTS_PER_SESSION,
        "trigger_ms": RANDOM_TRIGGER_MS if cell.random_kills else cell.trigger_ms,
    }


def seeds_for(exactly_once: int) -> dict[str, int]:
    """The number of runs of each chain, by guarantee; 1 for the weaker guarantees."""
    return {AT_MOST_ONCE: 1, AT_LEAST_ONCE: 1, EXACTLY_ONCE: exactly_once}
