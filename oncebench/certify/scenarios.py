"""The scenarios of a certificate, as data: what happens to the job during a run.

Promise: every point of a batch that is visible from outside the sink has a scenario. A sink that calls
`failpoint(NAME)` gets one more scenario per name. A run has one scenario, so each finding has one cause, and one
command repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.delivery.failpoints import FIRST_BATCH, KILL, OWN
from oncebench.scenario.cell import Cell
from oncebench.scenario.matrix.cells import BATCHES_PER_KILL, RANDOM_TRIGGER_MS, SESSIONS_PER_BATCH
from oncebench.sinks.black_box.sink import FAULT_AFTER, FORMAT, FUNCTION

SINK = "black-box"
# Events per second. The number of events limits a batch, so the rate decides only how long the load lasts.
RATE = 500.0
# The warm-up has 30 sessions, which make six batches. The load makes ten more, at least four of them after the fault.
EVENTS_PER_BATCH = 500
BATCHES = 10


@dataclass(frozen=True)
class Scenario:
    """One run of a sink.

    Attributes:
        name: the value of --only that selects the scenario.
        description: what happens, as the certificate prints it.
        faults: specifications of the faults, in the order in which they act. Empty: only `random_kills` act.
        random_kills: the number of kills at random times.
        no_hit: why the faults may not be hit, as the certificate prints it; empty: no known reason.
    """

    name: str
    description: str
    faults: tuple[str, ...] = ()
    random_kills: int = 0
    no_hit: str = ""

    @property
    def healthy(self) -> bool:
        """Whether nothing happens to the run."""
        return not self.faults and not self.random_kills


# A scenario of the sink's own failpoint has this prefix, then the name that the sink gave to `failpoint`.
AT_OWN_POINT = f"kill-at-{OWN}"
HEALTHY = Scenario("healthy", "nothing happens")
SCENARIOS: Sequence[Scenario] = (
    HEALTHY,
    Scenario("kill-at-batch-start", "the job is killed before it calls the function", ("batch-start:kill",)),
    Scenario(
        "kill-amid-call",
        "the job is killed during the call: one task has passed on all of its rows, another task half of its rows",
        ("mid-write:kill",),
    ),
    Scenario(
        "kill-before-return",
        "the job is killed after every task has passed on its rows, and before the function returns",
        ("before-prepare:kill",),
    ),
    Scenario(
        "kill-amid-write",
        "the job is killed before the function returns, as soon as the reader returns rows of the batch",
        ("after-prepare:kill",),
        no_hit="the reader returned no row of a batch before the function returned",
    ),
    Scenario(
        "kill-after-call",
        "the job is killed after the function has returned, and before Spark records the batch as done",
        ("after-commit:kill",),
    ),
    Scenario(
        "kill-after-commit-log",
        "the job is killed after Spark has recorded the batch as done",
        ("after-commit-log:kill",),
    ),
    Scenario(
        "double-kill",
        "the job is killed after the call, and again after the call for the replay of the batch",
        ("after-commit:kill", "after-commit:kill"),
    ),
    Scenario(
        "kill-worker",
        "one Python worker process is killed during the call, so Spark fails the batch",
        ("mid-write:kill-worker",),
    ),
    Scenario(
        "zombie",
        "the job is paused before the call. A second job takes over and finishes the batch. Then the first job "
        "continues and calls the function",
        ("batch-start:zombie",),
    ),
    Scenario(
        "zombie-amid-call",
        "the job is paused during the call. A second job takes over and finishes the batch. Then the first job "
        "continues the call",
        ("mid-write:zombie",),
    ),
    Scenario(
        "replay",
        "the job is killed, and Spark's record that the last batch is done is deleted, so Spark runs the batch again",
        ("after-commit-log:lose-commits",),
    ),
    Scenario("random-kills", "the job is killed three times at random moments", random_kills=3),
)  # fmt: skip


def of_own_points(passed: Iterable[tuple[str, int]]) -> list[Scenario]:
    """Returns a scenario for each failpoint that the sink calls by name.

    A sink may reach a point in its first batches only, for example when it makes its table. Then the fault acts in the
    last of these batches.

    Args:
        passed: (failpoint, batch) for each time that a healthy run has passed a failpoint.
    """
    last: dict[str, int] = {}
    for point, batch in passed:
        if point.startswith(OWN):
            name = point.removeprefix(OWN)
            last[name] = max(batch, last.get(name, batch))
    return [
        Scenario(
            f"{AT_OWN_POINT}{name}",
            f'the job is killed at failpoint("{name}") in the sink',
            (f"{OWN}{name}:{KILL}{'' if batch >= FIRST_BATCH + FAULT_AFTER else f'@batch={batch}'}",),
        )
        for name, batch in last.items()
    ]


# Points that are not visible with a streaming sink of Spark: Spark calls the sink inside the JVM.
_AROUND_THE_CALL = ("batch-start:", "after-prepare:", "after-commit:")


def chosen(function: bool) -> list[Scenario]:
    """Returns the scenarios of a sink, without those of its own failpoints.

    Args:
        function: whether the sink is a function; else it is a streaming sink of Spark, which has fewer.
    """
    if function:
        return list(SCENARIOS)
    return [each for each in SCENARIOS if not any(fault.startswith(_AROUND_THE_CALL) for fault in each.faults)]


def cell_of(scenario: Scenario, function: bool, black_box: str, seed: int) -> Cell:
    """Returns the cell that runs a scenario.

    Args:
        function: whether the sink is a function; else it is a streaming sink of Spark.
        black_box: see `Cell.black_box`.
        seed: of the load and of the random kills.
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
        faults=(*(fault if "@" in fault else f"{fault}@after={FAULT_AFTER}" for fault in first), *others),
        random_kills=scenario.random_kills,
        rate=RATE,
        sessions=sessions,
        seed=seed,
        trigger_ms=RANDOM_TRIGGER_MS if scenario.random_kills else 0,
        max_events_per_batch=events,
        black_box=black_box,
    )
