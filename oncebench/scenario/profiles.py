"""Profiles: named sets of cells that `oncebench compare --profile` runs. Data.

Promise: a profile has cells for every sink that is named and installed, in the order of tables. Its load fits its
purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.contract import AT_MOST_ONCE, EXACTLY_ONCE, Support
from oncebench.delivery.failpoints import POINTS
from oncebench.errors import ExitCode, UserError
from oncebench.faults.catalogue import checked_fault
from oncebench.scenario.cell import Cell
from oncebench.scenario.order import ordered
from oncebench.scenario.supports import all_supports, installed, require_sinks
from oncebench.sinks.registry import SINKS

# The failpoint where a kill separates the guarantees. The sink has the rows and Spark's commit log does not record the
# batch yet. Under at-most-once: the batch is claimed and nothing is written.
DECISIVE_POINT: Mapping[str, str] = {
    "at-most-once": "after-decision",
    "at-least-once": "after-commit",
    "exactly-once": "after-commit",
}


def quick(base: Cell | None = None) -> list[Cell]:
    """Every cell healthy, and killed once at its decisive point."""
    cells = []
    for cell in _cells(base):
        cells += [cell, replace(cell, faults=(checked_fault(DECISIVE_POINT[cell.guarantee]),))]
    return cells


# Two faults need this many batches: the second comes two batches after the first, and some work must remain after a
# restart, however long a batch takes.
PAIR_BATCHES = 10


def standard(base: Cell | None = None) -> list[Cell]:
    """Every cell healthy, and killed twice in one run; then the deliberately broken sinks.

    The kills come at the decisive point and in the middle of a later batch's commits.
    """
    cells = []
    for cell in _cells(base):
        faults = (checked_fault(DECISIVE_POINT[cell.guarantee]), checked_fault("mid-commit@after=2"))
        cells += [cell, replace(cell, faults=faults, max_events_per_batch=_limit(cell, PAIR_BATCHES))]
    return cells + broken(base)


def broken(base: Cell | None = None) -> list[Cell]:
    """The deliberately broken sinks, each with the faults that expose its defect."""
    return [
        replace(_cell(base, sink, support), faults=tuple(map(checked_fault, support.triggering_faults)))
        for sink, kind in SINKS.items()
        for support in ordered(kind.supports)
        if support.expected_anomaly is not None
    ]


# Twice as many batches as nine faults need: each comes a few batches after the previous one, and sessions end late.
CHAIN_BATCHES = 60


def failpoints(base: Cell | None = None) -> list[Cell]:
    """Every cell healthy, and killed at every failpoint, one after the other in one run.

    Each kill has a batch of its own, and the report charges it with the rows that this batch lost or duplicated.
    Batches are limited: without a limit, one batch after a restart would take the whole backlog and leave no batch for
    the next faults.
    """
    cells = []
    chain = tuple(checked_fault(point if at == 0 else f"{point}@after=2") for at, point in enumerate(POINTS))
    for cell in _cells(base):
        cells += [cell, replace(cell, faults=chain, max_events_per_batch=_limit(cell, CHAIN_BATCHES))]
    return cells


def cost(base: Cell | None = None) -> list[Cell]:
    """At-least-once and exactly-once by default variants, healthy: for rounds (`--repeat`)."""
    return [
        _cell(base, sink, support)
        for sink, support in all_supports()
        if support.default and support.guarantee != AT_MOST_ONCE
    ]


# A million events after the warm-up, in ten batches or more. The batch is as large as one after an outage of 10 s.
FLAT_OUT_SESSIONS, FLAT_OUT_BATCH = 16_000, 100_000


def price(base: Cell | None = None) -> list[Cell]:
    """At-least-once and exactly-once in every variant, flat out: for rounds (`--repeat`).

    All cells have the same limit of events per batch, so no cell saves batches by being slow.
    """
    return [
        replace(cell, max_events_per_batch=cell.max_events_per_batch or FLAT_OUT_BATCH)
        for cell in _cells(base)
        if cell.guarantee != AT_MOST_ONCE
    ]


def recovery(base: Cell | None = None) -> list[Cell]:
    """At-least-once and exactly-once by default variants, killed at the same point."""
    return [replace(cell, faults=(checked_fault("after-commit"),)) for cell in cost(base)]


def double(base: Cell | None = None) -> list[Cell]:
    """Exactly-once killed in a batch and again in its replay."""
    pairs = (
        ("mid-write", "after-prepare"),
        ("after-prepare", "before-decision"),
        ("before-decision", "after-decision"),
        ("after-decision", "after-commit"),
        ("after-commit", "batch-start"),
    )
    cells = [cell for cell in _cells(base) if cell.guarantee == EXACTLY_ONCE]
    return [replace(cell, faults=tuple(map(checked_fault, pair))) for cell in cells for pair in pairs]


def _limit(cell: Cell, batches: int) -> int:
    """The limit of events per batch that divides the load into at least so many batches."""
    return cell.max_events_per_batch or max(1, cell.sessions * EVENTS_PER_SESSION // batches)


def _cells(base: Cell | None) -> list[Cell]:
    return [_cell(base, sink, support) for sink, support in all_supports()]


def _cell(base: Cell | None, sink: str, support: Support) -> Cell:
    return replace(base or Cell("", "", ""), sink=sink, guarantee=support.guarantee, variant=support.variant)


@dataclass(frozen=True)
class Profile:
    """A named set of cells.

    Attributes:
        cells: builds the cells from a cell without sink and guarantee.
        sinks: the sinks that run if the user names none. Empty: every installed sink.
        repeat: the number of rounds over healthy cells if the user gives none. Faulted cells run in the first round
            only.
        rate, duration_s: the load if the user gives none. A flat-out load has FLAT_OUT_SESSIONS instead of a duration.
            The default duration gives a p99 the hundred sessions that it needs; ten such cells take six minutes. The
            default rate suits every sink, and a small machine.
        warmup_s: the warm-up of its cells in seconds, see `Cell`.
    """

    cells: Callable[[Cell | None], list[Cell]]
    sinks: tuple[str, ...] = ()
    repeat: int = 1
    rate: float | str = 1000.0
    duration_s: float = 14.0
    warmup_s: float = Cell.warmup_s

    @property
    def sessions(self) -> int:
        """The number of sessions if the user names neither sessions nor a duration."""
        if isinstance(self.rate, str):
            return FLAT_OUT_SESSIONS
        return round(self.rate * self.duration_s / EVENTS_PER_SESSION)

    def select_cells(self, base: Cell | None, sinks: Sequence[str] = ()) -> list[Cell]:
        """The profile's cells of these sinks; without `base` under the profile's own load.

        Raises:
            UserError: a sink is unknown, or the profile has no cell of it (exit code 2).
        """
        require_sinks(sinks)
        wanted = tuple(sinks) or self.sinks or installed()
        mine = Cell("", "", "", rate=self.rate, sessions=self.sessions, warmup_s=self.warmup_s)
        found = [cell for cell in self.cells(base or mine) if cell.sink in wanted]
        for sink in sinks:
            if not any(cell.sink == sink for cell in found):
                where = (
                    "" if any(s.expected_anomaly is None for s in SINKS[sink].supports) else ": give --profile broken"
                )
                raise UserError(f"this profile has no cells of sink {sink}{where}", exit_code=ExitCode.USAGE)
        return found


# A first look must take minutes, so these profiles run the main sink only, unless the user names others.
FIRST = ("kafka",)
PROFILES: Mapping[str, Profile] = {
    "quick": Profile(quick, FIRST),
    "standard": Profile(standard),
    "broken": Profile(broken),
    # Each fault needs batches of its own and is followed by a restart, so the load is longer and slower.
    "failpoints": Profile(failpoints, FIRST, rate=300.0, duration_s=60.0),
    "double": Profile(double, FIRST),
    # A rate at which batches are large enough to show what a guarantee costs, and two cores are half busy.
    "cost": Profile(cost, FIRST, rate=10_000.0, duration_s=16.0, warmup_s=6.0),
    # Ten rounds give the ratio of two guarantees within a few percent.
    "price": Profile(price, FIRST, repeat=10, rate="max"),
    # Ten rounds: a recovery includes timers of Spark and Kafka that work in whole seconds, so single values scatter.
    "recovery": Profile(recovery, FIRST, repeat=10),
    # The published comparison of all sinks. Its healthy cells have the load of `cost`. Six rounds are the fewest that
    # have an interval. Warm-up: in 50 runs the median latency fell by 7 % until the sixth second, while the JVM
    # compiled hot code, then by 6 %.
    "full": Profile(standard, repeat=6, rate=10_000.0, duration_s=16.0, warmup_s=6.0),
}


def by_profile(field: Callable[[Profile], float | str]) -> str:
    """Help text for a field: its usual value and exceptions, as in `10; full: 18`."""
    usual, _ = Counter(map(field, PROFILES.values())).most_common(1)[0]
    others = (f"{name}: {_short(field(profile))}" for name, profile in PROFILES.items() if field(profile) != usual)
    return "; ".join(filter(None, (_short(usual), ", ".join(others))))


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.10g}"
