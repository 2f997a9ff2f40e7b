"""Checks that a sink_id can be a part of names.

Sinks put it into the names of files, entries, groups and transactional ids.
"""

from __future__ import annotations

import re

from oncebench.delivery.errors import RefusedStart

_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")


def refuse_unfit_sink_id(sink_id: str, place: str = "") -> None:
    """Refuses a sink_id that cannot be a name.

    Args:
        sink_id: of the job.
        place: the file that has it; empty: no file.
    """
    where = f"{place}: " if place else ""
    if not _ALLOWED.fullmatch(sink_id):
        raise RefusedStart(
            f"{where}sink_id is {sink_id!r}, and may have only letters, digits, `.`, `_` and `-`. Rename it."
        )
