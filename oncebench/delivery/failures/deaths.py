"""Counts how often the same batch died by the same error, across restarts.

The count is a file in the journal's folder, `deaths.json`. Promise: it never prevents or delays a delivery. A count
that cannot be read or written is taken as the first. It begins again with another batch or another error, and is
removed when a batch is delivered.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from oncebench.delivery.errors import TransactionLost, TransactionTooSlow

NAME = "deaths.json"
# One death may be bad luck, and a second one its after-effect.
SUSPICIOUS = 3
# Kafka reports these in many words, as whatever request came first after the time-out.
_SAME = (TransactionTooSlow, TransactionLost)
# Numbers and hexadecimal ids differ from attempt to attempt.
_VARYING = re.compile(r"\b[0-9a-f]*\d[0-9a-f]*\b")


def count(journal: Path, batch: int, error: BaseException) -> int:
    """Adds a death of a batch; returns how many in a row were of this batch and this error."""
    path = journal / NAME
    text = "" if isinstance(error, _SAME) else f": {_VARYING.sub('#', str(error))}"
    death = {"batch": batch, "error": f"{type(error).__name__}{text}"}
    deaths = 1
    with suppress(OSError, ValueError, TypeError, AttributeError):
        before = json.loads(path.read_text())
        if {name: before.get(name) for name in death} == death:
            deaths = int(before["deaths"]) + 1
    with suppress(OSError):  # not forced to the disk: a count that a power cut loses is no loss
        temporary = path.with_name(f".{NAME}.new")
        temporary.write_text(json.dumps({**death, "deaths": deaths}))
        temporary.replace(path)
    return deaths


def forget(journal: Path) -> None:
    """Removes the count: a batch was delivered."""
    with suppress(OSError):
        (journal / NAME).unlink()
