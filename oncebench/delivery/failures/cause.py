"""A table's entry for an error code: whether a restart can mend it, why, and what to do.

Promise: a code that is in no table counts as transient, because a wrong "permanent" stops a job that would recover.
`oncebench.delivery.failures.deaths` then counts how often the same batch dies by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncebench.delivery.contract import AT_MOST_ONCE
from oncebench.delivery.errors import DeliveryFailed, PermanentFailure

RESTART = "A restart of the pipeline writes the batch again."
NO_RESTART = "A restart does not help."
REPEATED = "A restart then repeats what was not committed."
UNLESS_THERE = "A restart writes the batch again, unless the table has it by then."


@dataclass(frozen=True)
class Cause:
    """What is known about an error code.

    Attributes:
        permanent: whether the batch meets the same error after a restart.
        reason: why the error occurs, or why it passes.
        remedy: what to do; empty for most transient errors.
        restart: what a restart does, if that differs from what it does after other errors.
    """

    permanent: bool
    reason: str
    remedy: str = ""
    restart: str = ""


UNKNOWN = Cause(False, "no table has this code")


def permanent(reason: str, remedy: str) -> Cause:
    """Returns the entry of an error that a restart cannot mend."""
    return Cause(True, reason, remedy)


def transient(reason: str, remedy: str = "", restart: str = "") -> Cause:
    """Returns the entry of an error that may pass by itself."""
    return Cause(False, reason, remedy, restart)


def of_claimed(text: str, batch: int) -> str:
    """Returns the text of a failed write under at-most-once, which no restart repeats.

    Args:
        text: says what a restart does under the other guarantees.
        batch: was claimed before the write.
    """
    if AT_MOST_ONCE in text:
        return text
    for sentence in (RESTART, NO_RESTART, REPEATED, UNLESS_THERE):
        text = text.replace(f" {sentence}", "")
    return f"{text} {dropped(batch)}"


def dropped(batch: int | str) -> str:
    """Returns what a restart does after a failed write of a claimed batch."""
    return (
        f"Under {AT_MOST_ONCE} a restart drops the rows of batch {batch} that the output lacks, and goes on; to have "
        "them, send their input again."
    )


def not_claimed(cause: Cause, text: str, batch: int) -> DeliveryFailed:
    """Returns the error of a batch whose claim failed in the sink.

    The journal has claimed the batch, so a restart drops it.

    Args:
        cause: from a table.
        text: see `failure`.
        batch: that was not written.
    """
    failed = failure(cause, f"batch {batch} was not written, because it could not be claimed {text}")
    return type(failed)(of_claimed(str(failed), batch))


def failure(cause: Cause, text: str, restart: str = RESTART) -> DeliveryFailed:
    """Returns the error of a batch that failed by this cause.

    Args:
        cause: from a table.
        text: what failed, where, and the server's or client's own words, without a full stop.
        restart: what a restart does, for a transient cause.
    """
    reason = "" if cause is UNKNOWN else f" ({cause.reason})"
    if cause.permanent:
        return PermanentFailure(f"{text}{reason}. {NO_RESTART} {cause.remedy}, then start again.")
    again = cause.restart or restart
    return DeliveryFailed(" ".join(filter(None, (f"{text}{reason}.", cause.remedy and f"{cause.remedy}.", again))))
