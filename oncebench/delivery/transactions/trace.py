"""Notes in the journal which transactions an operator has ended.

    ended-000000.json    {"asked": "abort", "generation": 4, "transactions": [{"name": "..", ..}], "t_us": 1}

Promise: the note is durable before the first transaction ends. After a death in between, some of the named transactions
may still be open: another call finds them, and makes a note of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from oncebench.delivery.journal import Journal
from oncebench.delivery.stores.choose import store_of
from oncebench.delivery.stores.entries import put_exclusively
from oncebench.delivery.transactions.left import Left


def note_ended(journal: Journal, asked: str, chosen: Sequence[Left]) -> str:
    """Notes transactions that are committed or aborted next; returns the name of the entry."""
    named = [{"name": each.name, "batch": each.batch, "partitions": each.partitions} for each in chosen]
    entry = {"asked": asked, "generation": journal.generation, "transactions": named, "t_us": time.time_ns() // 1000}
    number = sum(name.startswith("ended-") for name in store_of(journal.folder).names())
    while not put_exclusively(journal.folder, f"ended-{number:06d}.json", entry):
        number += 1
    return f"ended-{number:06d}.json"
