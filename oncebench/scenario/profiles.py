"""Named choices of cells, as data: what `oncebench compare --profile` runs.

Promise: each gives cells of every sink that is named and can be run, in the order of tables, and a load under which
they show what they are for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from oncebench.delivery.contract import AT_MOST_ONCE, EXACTLY_ONCE, Support
from oncebench.delivery.failpoints import POINTS
from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import Cell, all_supports, checked_fault, installed, ordered, require_sinks
from oncebench.sinks.registry import SINKS

# The healthy run and the point at which each guarantee shows what it is made of: the sink has the rows and Spark's
# commit log does not know it yet (or, under at-most-once, the claim stands and nothing has been written).
TELLING_FAULT: Mapping[str, str] = {
    "at-most-once": "after-decision",
    "at-least-once": "after-commit",
    "exactly-once": "after-commit",
}


def quick(base: Cell | None = None) -> list[Cell]:
    """Every cell healthy and killed once where it tells most."""
    cells = []
    for cell in _cells(base):
        cells += [cell, replace(cell, faults=(checked_fault(TELLING_FAULT[cell.guarantee]),))]
    return cells


# Two faults, the second two batches after the first, and some to come back to: of a backlog too, however long a
# batch takes.
PAIR_BATCHES = 10


def standard(base: Cell | None = None) -> list[Cell]:
    """Every cell healthy, and killed twice in one run: where it tells most, and amid the commits of a later batch.

    Then what is broken on purpose, killed where it shows.
    """
    cells = []
    for cell in _cells(base):
        faults = (checked_fault(TELLING_FAULT[cell.guarantee]), checked_fault("mid-commit@after=2"))
        cells += [cell, replace(cell, faults=faults, max_events_per_batch=_limit(cell, PAIR_BATCHES))]
    return cells + broken(base)


def broken(base: Cell | None = None) -> list[Cell]:
    """What is broken on purpose, each with the fault that shows it."""
    return [
        replace(_cell(base, sink, support), faults=tuple(map(checked_fault, support.triggering_faults)))
        for sink, kind in SINKS.items()
        for support in ordered(kind.supports)
        if support.expected_anomaly is not None
    ]


# Nine faults, each a few batches after the last, and the sessions that end late: twice what they need.
CHAIN_BATCHES = 60


def failpoints(base: Cell | None = None) -> list[Cell]:
    """Every cell healthy, and killed at every failpoint, one after the other in one run.

    Each kill has a batch of its own, so that the report can charge it with what that batch lost and doubled. Batches
    are limited, so that the backlog of a restart is not gone in one and the next faults find theirs.
    """
    cells = []
    chain = tuple(checked_fault(point if at == 0 else f"{point}@after=2") for at, point in enumerate(POINTS))
    for cell in _cells(base):
        cells += [cell, replace(cell, faults=chain, max_events_per_batch=_limit(cell, CHAIN_BATCHES))]
    return cells


def cost(base: Cell | None = None) -> list[Cell]:
    """At-least-once and exactly-once healthy by their default variants, to take turns in rounds (`--repeat`)."""
    return [
        _cell(base, sink, support)
        for sink, support in all_supports()
        if support.default and support.guarantee != AT_MOST_ONCE
    ]


def recovery(base: Cell | None = None) -> list[Cell]:
    """At-least-once and exactly-once by their default variants, both killed at the same point, to take turns."""
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
    """The limit of one batch that makes at least so many of the load."""
    return cell.max_events_per_batch or max(1, cell.sessions * 100 // batches)


def _cells(base: Cell | None) -> list[Cell]:
    return [_cell(base, sink, support) for sink, support in all_supports()]


def _cell(base: Cell | None, sink: str, support: Support) -> Cell:
    return replace(base or Cell("", "", ""), sink=sink, guarantee=support.guarantee, variant=support.variant)


@dataclass(frozen=True)
class Profile:
    """A named choice of cells.

    Attributes:
        cells: makes them from a cell without sink and guarantee.
        sinks: those it has if the user names none (empty: every sink that misses nothing here).
        repeat: rounds over its healthy cells if the user names none; beside them faulted ones are run in the first
            only.
        rate, duration_s: its load if the user names none. By default: so long that a p99 has the hundred sessions that
            it needs; ten such cells fit into six minutes. Two cores are at their limit with 2,000 events/s, where a
            latency is that of a queue; at half of that all guarantees have room.
        warmup_s: of its cells.
    """

    cells: Callable[[Cell | None], list[Cell]]
    sinks: tuple[str, ...] = ()
    repeat: int = 1
    rate: float = 1000.0
    duration_s: float = 14.0
    warmup_s: float = Cell.warmup_s

    def chosen(self, base: Cell | None, sinks: Sequence[str] = ()) -> list[Cell]:
        """Its cells of the sinks that are named; without `base` under the load of the profile.

        Raises:
            UserError: there is no such sink, or nothing of it in this profile (exit code 2).
        """
        require_sinks(sinks)
        wanted = tuple(sinks) or self.sinks or installed()
        sessions = round(self.rate * self.duration_s / 100)
        mine = Cell("", "", "", rate=self.rate, sessions=sessions, warmup_s=self.warmup_s)
        found = [cell for cell in self.cells(base or mine) if cell.sink in wanted]
        for sink in sinks:
            if not any(cell.sink == sink for cell in found):
                where = (
                    "" if any(s.expected_anomaly is None for s in SINKS[sink].supports) else ": give --profile broken"
                )
                raise UserError(f"this profile holds nothing of sink {sink}{where}", exit_code=ExitCode.USAGE)
        return found


# What the first look at the suite runs must fit into minutes: the sink that the suite is about.
FIRST = ("kafka",)
PROFILES: Mapping[str, Profile] = {
    "quick": Profile(quick, FIRST),
    "standard": Profile(standard),
    "broken": Profile(broken),
    # Each fault needs batches of its own, and a restart between two: a longer load, and a slower one.
    "failpoints": Profile(failpoints, FIRST, rate=300.0, duration_s=60.0),
    "double": Profile(double, FIRST),
    # As long as those of `full`, so that they can stand beside them.
    "cost": Profile(cost, FIRST, duration_s=16.0, warmup_s=6.0),
    # Ten, because a recovery falls into whole seconds of Spark's and Kafka's own.
    "recovery": Profile(recovery, FIRST, repeat=10),
    # What is published: five rounds are the fewest of which an interval says something. In 50 runs the median latency
    # fell by 7 % until the sixth second, while the JVM compiled what is hot, and by 6 % after it. The ten seconds after
    # it hold the hundred sessions that a p99 needs.
    "full": Profile(standard, repeat=5, duration_s=16.0, warmup_s=6.0),
}


def by_profile(field: Callable[[Profile], float]) -> str:
    """What most profiles have of a field, then those that have something else: `10; full: 18, recovery: 14`."""
    usual, _ = Counter(map(field, PROFILES.values())).most_common(1)[0]
    others = (f"{name}: {field(profile):g}" for name, profile in PROFILES.items() if field(profile) != usual)
    return "; ".join(filter(None, (f"{usual:g}", ", ".join(others))))
