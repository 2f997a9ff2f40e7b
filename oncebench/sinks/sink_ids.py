"""Checks a sink_id. Sinks put it into the names of files, entries, groups and transactional ids."""

from __future__ import annotations

import re

from oncebench.delivery.errors import RefusedStart

_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")
# Follows the sink_id in each transactional id of the Kafka sink, see `oncebench.sinks.kafka.names`.
_TRANSACTIONS = ".txn."


def refuse_unfit_sink_id(sink_id: str, place: str = "") -> None:
    """Refuses a sink_id that cannot be a name, or whose transactional ids would also belong to another sink_id.

    Args:
        sink_id: of the job.
        place: the file that names it; empty: code does.
    """
    where = f"{place}: " if place else ""
    if not _ALLOWED.fullmatch(sink_id):
        raise RefusedStart(
            f"{where}sink_id is {sink_id!r}, and may have only letters, digits, `.`, `_` and `-`. Rename it."
        )
    if _TRANSACTIONS in f"{sink_id}.":
        raise RefusedStart(
            f"{where}sink_id is {sink_id!r}, and may not have the part `.txn`. In Kafka, a job whose sink_id is the "
            "text before it would end this job's transactions. Rename it; a job that has run also needs a new "
            "checkpoint and output."
        )
