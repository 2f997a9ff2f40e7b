"""Plans a load: the due time of each event, and the start that its generators share.

Several generators agree on the start in a folder. Each one creates `ready-<number>` when its ledger is planned.
Generator 1 waits for all of these files and writes the start of the load into `started_us`. The other generators wait
for that file. The start is schedule time 0 of all generators.

Failures: the folder was used before, a generator is not ready in time, or the load is stopped meanwhile (`LoadError`).
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from loadgen.config import LoadConfig
from loadgen.errors import LoadError
from loadgen.ledger import Ledger, Plan
from loadgen.replay.events import schedule_in_order
from loadgen.schedule import Block, schedule
from loadgen.share import Share
from loadgen.workloads import LATE_BY_US, WORKLOADS

LIMIT_S = 120.0
"""Seconds to wait for the other generators: their start and plan take seconds, on a busy machine a minute."""

POLL_S = 0.005

ALONE_LEAD_US, EVENTS_PER_LEAD_US = 50_000, 50
"""Schedule time 0 is this far in the future when one generator chooses it, so that the first event is not late.

50 ms, and 20 ns per event, because adding the start to all scheduled times takes time.
"""

LEAD_US = 250_000
"""Time from the last `ready` to the start: each process must see the file and fill in its times before it begins."""

_STARTED = "started_us"


def plan_load(
    config: LoadConfig,
    clock: Callable[[], int],
    stopped: Callable[[], bool] = lambda: False,
    started_us: int | None = None,
) -> Ledger:
    """Creates the ledger of a load that is about to start.

    The ledger has the schedule of this generator and the plan. Several generators wait for each other here; `stopped`
    ends the wait. `started_us` is as in `run_load`.
    """
    ledger = Ledger.create(config.ledger_dir, config.own_events)
    filled = 0
    for whole in _planned(config):
        block = config.share.of(whole)
        rows = slice(filled, filled + len(block.seq))
        ledger.session[rows], ledger.seq[rows], ledger.scheduled_us[rows] = block
        filled = rows.stop
    adding_us = config.own_events // EVENTS_PER_LEAD_US
    if config.meeting_dir is None:
        started_us = clock() + ALONE_LEAD_US + adding_us if started_us is None else started_us
    else:
        started_us = meet(config.meeting_dir, config.share, adding_us, clock, stopped)
    ledger.scheduled_us[:] += started_us
    workload = WORKLOADS[config.workload]
    if workload.late_every is not None:
        ledger.scheduled_us[workload.late(ledger.session, ledger.seq)] -= LATE_BY_US
    ledger.write_plan(
        Plan(
            config.seed,
            config.rate,
            config.shape,
            config.sessions,
            config.own_events,
            config.topic,
            started_us,
            config.events_per_session,
            config.record_bytes,
            generator=config.generator,
            generators=config.generators,
        )
    )
    return ledger


def _planned(config: LoadConfig) -> Iterator[Block]:
    """The events of the whole load."""
    if config.replayed is not None:
        return schedule_in_order(config.events, config.parsed_shape())
    return schedule(config.seed, config.sessions, config.parsed_shape(), config.events_per_session)


def meet(
    place: Path,
    share: Share,
    lead_us: int,
    clock: Callable[[], int],
    stopped: Callable[[], bool],
    limit_s: float = LIMIT_S,
) -> int:
    """Waits for the other generators of a load; returns the common start in epoch µs.

    Args:
        place: the folder in which they meet; made if it is missing.
        share: of the generator that calls.
        lead_us: further µs that this generator needs between the answer and the start; that of generator 1 counts.
        clock: epoch µs.
        stopped: whether the load is to stop.
        limit_s: seconds to wait.

    Raises:
        LoadError: see the module.
    """
    place.mkdir(parents=True, exist_ok=True)
    ready = [place / f"ready-{number}" for number in range(1, share.generators + 1)]
    started = place / _STARTED
    try:
        ready[share.number - 1].touch(exist_ok=False)
    except FileExistsError:
        raise LoadError(f"{place} was used by an earlier load; choose another meeting_dir or delete it") from None
    until = time.monotonic() + limit_s
    while missing := [each for each in (ready if share.number == 1 else [started]) if not each.exists()]:
        if stopped():
            raise LoadError(f"{share} was stopped before the load began")
        if time.monotonic() > until:
            names = ", ".join(each.name for each in missing)
            raise LoadError(f"{share} waited {limit_s:g} s for the others: {place} has no {names}. See their logs")
        time.sleep(POLL_S)
    if share.number == 1:
        fresh = place / f"{_STARTED}.new"
        fresh.write_text(str(clock() + LEAD_US + lead_us))
        fresh.rename(started)
    return int(started.read_text())
