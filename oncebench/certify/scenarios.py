"""The scenarios of a certificate as data: what happens to a run of the user's sink.

Promise: every point that is visible from outside the sink has a scenario. A sink that calls `failpoint` gets one more
scenario per name. One run has one scenario, so each finding has one cause and one command.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.delivery.failpoints import KILL, OWN
from oncebench.scenario.cell import Cell
from oncebench.scenario.fault_matrix import BATCHES_PER_KILL, RANDOM_TRIGGER_MS, SESSIONS_PER_BATCH
from oncebench.sinks.black_box.sink import FAULT_AFTER, FORMAT, FUNCTION

SINK = "black-box"
# Events per second. Batches are limited by events, so the rate decides only how long the load lasts.
RATE = 500.0
# The warm-up is 30 sessions, which make six batches. The load makes ten more, at least four of them after the fault.
EVENTS_PER_BATCH = 500
BATCHES = 10


@dataclass(frozen=True)
class Scenario:
    """One run of a sink.

    Attributes:
        name: the name that a user gives to --only.
        description: what happens, in words.
        faults: in the order in which they act; none: the run is healthy, or killed at random times.
        random_kills: the number of kills at random times.
    """

    name: str
    description: str
    faults: tuple[str, ...] = ()
    random_kills: int = 0

    @property
    def healthy(self) -> bool:
        """Whether nothing happens to the run."""
        return not self.faults and not self.random_kills


# The name of the scenario of a failpoint that the sink calls by name begins with this.
AT_OWN_POINT = "kill-at-"
HEALTHY = Scenario("healthy", "nothing happens")
SCENARIOS: Sequence[Scenario] = (
    HEALTHY,
    Scenario("kill-at-batch-start", "the job is killed before it calls the function", ("batch-start:kill",)),
    Scenario(
        "kill-amid-call",
        "the job is killed when one task has passed on all of its rows, and another task half of them",
        ("mid-write:kill",),
    ),
    Scenario(
        "kill-before-return",
        "the job is killed when every task has ended, and the function has not returned",
        ("before-prepare:kill",),
    ),
    Scenario("kill-after-call", "the job is killed when the function has returned", ("after-commit:kill",)),
    Scenario(
        "kill-after-commit-log",
        "the job is killed when Spark has recorded the batch as done",
        ("after-commit-log:kill",),
    ),
    Scenario(
        "double-kill",
        "the job is killed after the call, and once more after the call of the replay",
        ("after-commit:kill", "after-commit:kill"),
    ),
    Scenario(
        "kill-worker",
        "one Python worker is killed amid the call, and Spark fails the batch",
        ("mid-write:kill-worker",),
    ),
    Scenario(
        "zombie",
        "the job stands still before the call. A second job takes over and finishes the batch. Then the first job "
        "continues and calls the function",
        ("batch-start:zombie",),
    ),
    Scenario(
        "zombie-amid-call",
        "the job stands still amid the call. A second job takes over and finishes the batch. Then the first job "
        "continues",
        ("mid-write:zombie",),
    ),
    Scenario(
        "replay",
        "Spark loses the record of the last batch, and runs the whole batch again",
        ("after-commit-log:lose-commits",),
    ),
    Scenario("random-kills", "the job is killed three times at random moments", random_kills=3),
)  # fmt: skip


def of_own_points(points: Iterable[str]) -> list[Scenario]:
    """Returns a scenario for each failpoint that the sink calls by name.

    Args:
        points: all points that a healthy run has passed.
    """
    names = dict.fromkeys(point.removeprefix(OWN) for point in points if point.startswith(OWN))
    return [
        Scenario(
            f"{AT_OWN_POINT}{name}",
            f'the job is killed at failpoint("{name}") in the function',
            (f"{OWN}{name}:{KILL}",),
        )
        for name in names
    ]


# Points that nobody sees in a streaming sink of Spark: it is called by Spark, in the JVM.
_AROUND_THE_CALL = ("batch-start:", "after-commit:")


def chosen(function: bool) -> list[Scenario]:
    """Returns the scenarios of a function, or of a streaming sink of Spark."""
    if function:
        return list(SCENARIOS)
    return [each for each in SCENARIOS if not any(fault.startswith(_AROUND_THE_CALL) for fault in each.faults)]


def cell_of(scenario: Scenario, function: bool, black_box: str, seed: int) -> Cell:
    """Returns the run of a scenario.

    Args:
        function: whether the sink is a function; else it is a streaming sink of Spark.
        black_box: see `Cell.black_box`.
        seed: of the load and of random kills.
    """
    if scenario.random_kills:
        events, sessions = SESSIONS_PER_BATCH * 100, (4 + BATCHES_PER_KILL * scenario.random_kills) * SESSIONS_PER_BATCH
    else:
        events, sessions = EVENTS_PER_BATCH, BATCHES * EVENTS_PER_BATCH // 100
    first, others = scenario.faults[:1], scenario.faults[1:]
    return Cell(
        SINK,
        EXACTLY_ONCE,
        FUNCTION if function else FORMAT,
        faults=(*(f"{fault}@after={FAULT_AFTER}" for fault in first), *others),
        random_kills=scenario.random_kills,
        rate=RATE,
        sessions=sessions,
        seed=seed,
        trigger_ms=RANDOM_TRIGGER_MS if scenario.random_kills else 0,
        max_events_per_batch=events,
        black_box=black_box,
    )
