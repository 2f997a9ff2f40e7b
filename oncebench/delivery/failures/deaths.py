"""Counts how often the same batch died by the same error, across restarts.

The count is a file in the journal's folder, `deaths.json`. Promise: it never prevents or delays a delivery. A count
that cannot be read or written is taken as the first. It begins again with another batch or another error, and is
removed when a batch is delivered.
"""

from __future__ import annotations

import re
from contextlib import suppress

from oncebench.delivery.errors import TransactionLost, TransactionTooSlow
from oncebench.delivery.stores.choose import Place, store_of
from oncebench.delivery.stores.entries import UNAVAILABLE, put_in_place_of, read_entry

NAME = "deaths.json"
# One death may be bad luck, and a second one its after-effect.
SUSPICIOUS = 3
# Kafka reports these in many words, as whatever request came first after the time-out.
_SAME = (TransactionTooSlow, TransactionLost)
# Numbers and hexadecimal ids differ from attempt to attempt.
_VARYING = re.compile(r"\b[0-9a-f]*\d[0-9a-f]*\b")


def count(journal: Place, batch: int, error: BaseException) -> int:
    """Adds a death of a batch; returns how many in a row were of this batch and this error."""
    text = "" if isinstance(error, _SAME) else f": {_VARYING.sub('#', str(error))}"
    death = {"batch": batch, "error": f"{type(error).__name__}{text}"}
    deaths = 1
    with suppress(*UNAVAILABLE, ValueError, TypeError):
        before = read_entry(journal, NAME)
        if {name: before.get(name) for name in death} == death:
            deaths = int(before["deaths"]) + 1
    with suppress(*UNAVAILABLE):  # not forced to the disk: a count that a power cut loses is no loss
        put_in_place_of(journal, NAME, {**death, "deaths": deaths}, durable=False)
    return deaths


def forget(journal: Place) -> None:
    """Removes the count: a batch was delivered."""
    with suppress(*UNAVAILABLE):
        store_of(journal).delete(NAME)
