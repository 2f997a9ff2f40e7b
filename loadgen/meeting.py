"""The common start of several generators: schedule time 0 is the same for all of them.

They meet in a folder. Each generator creates `ready-<number>` when its ledger is planned. Generator 1 waits for all of
these files and writes the start of the load into `started_us`. The others wait for that file.

Failures: the folder was used before, a generator is not ready in time, or the load is stopped meanwhile (`LoadError`).
"""

import time
from collections.abc import Callable
from pathlib import Path

from loadgen.errors import LoadError
from loadgen.share import Share

LIMIT_S = 120.0
"""Limit of the wait for the others: their start and their plan take seconds, on a busy machine a minute."""

POLL_S = 0.005

LEAD_US = 250_000
"""Time from the last `ready` to the start: each process must see the file and fill in its times before it begins."""

_STARTED = "started_us"


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
