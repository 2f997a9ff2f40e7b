"""Decides from the movement of a machine's clock whether the times of a run are known.

The load generator reads the monotonic clock. Observer, pipeline and supervisor read the wall clock. The two differ by
a constant until the wall clock is set or the machine sleeps. Then latencies are wrong, and a failure seems to act at
another time than it did.

Promise: a run that did not watch its clock counts as one whose clock was not moved.
"""

from __future__ import annotations

# The error of a latency that is accepted: the observer sees rows of most sinks some ms late.
MOST_US = 5_000


def why_no_times(moved_us: int | None) -> str:
    """Returns why the times of a run are not known, as a reason of its verdict.

    The text is empty if the times are known.

    Args:
        moved_us: `clock_moved_us` of the run; None if it did not watch its clock.
    """
    if moved_us is None or abs(moved_us) <= MOST_US:
        return ""
    how = "forward" if moved_us > 0 else "back"
    return (
        f"the clock of the run's machine was set {how} by {abs(moved_us) / 1e6:,.3f} s during the run, or the machine "
        "slept. So the times of the run are not known. Run it again while the machine is awake and nothing sets its "
        "clock"
    )
