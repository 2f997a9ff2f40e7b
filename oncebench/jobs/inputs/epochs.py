"""Finds an input log that lost its end and has grown again, so its offsets alone look right.

An unclean leader election cuts a partition's log. New records then take the offsets of lost ones, perhaps up to the
checkpoint's position, and Spark's source reads on behind them. Each leader has an epoch, and a broker knows where the
records of an epoch end (KIP-320). The driver notes each partition's position with the leader's epoch at that time:

    read/epochs.json    {"partitions": {"0": [1200, 4]}}

means that all records before offset 1200 were read, and that none of them is of a later epoch than 4.

Promise: a note never refuses a log that was not cut: the position is taken first, then the epoch. What can go wrong: a
cut in the seconds between the read and the note is not found; the note is not forced to the disk, so after a power cut
a start finds less.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

from oncebench.delivery.stores.choose import Place, store_of
from oncebench.delivery.stores.entries import UNAVAILABLE, read_entry
from oncebench.delivery.stores.interface import Store
from oncebench.jobs.inputs.positions import Range

_FOLDER, _ENTRY = "read", "epochs.json"
_log = logging.getLogger(__name__)
# Partition -> (position, leader epoch).
Notes = dict[str, tuple[int, int]]


class Epochs:
    """The noted positions of one checkpoint.

    Args:
        journal: the journal's folder.
    """

    def __init__(self, journal: Place) -> None:
        self._store = store_of(journal).below(_FOLDER)
        self._noted = _read(self._store)

    def note(self, positions: Mapping[str, int], epochs: Mapping[str, int]) -> None:
        """Notes positions with the leader epochs that were read after them."""
        noted = {p: (position, epochs[p]) for p, position in positions.items() if epochs.get(p, -1) >= 0}
        if noted == self._noted:
            return
        self._noted = noted
        try:
            self._store.put(_ENTRY, json.dumps({"partitions": noted}).encode(), durable=False)
        except UNAVAILABLE as error:  # the next start only finds less
            _log.warning("%s/%s cannot be written: %s", self._store, _ENTRY, error)

    def cut(self, end_of: Callable[[str, int], int]) -> list[Range]:
        """Returns the ranges that were read and are other records now.

        Args:
            end_of: returns where the records of a partition's epochs up to this one end; -1: unknown.
        """
        return cut(self._noted, end_of)

    def forget(self) -> None:
        """Forgets all notes, after an accepted loss has moved the positions."""
        self._noted = {}
        self._store.delete(_ENTRY)


def cut(noted: Mapping[str, tuple[int, int]], end_of: Callable[[str, int], int]) -> list[Range]:
    """See `Epochs.cut`."""
    found = []
    for partition, (position, epoch) in sorted(noted.items(), key=lambda each: int(each[0])):
        end = end_of(partition, epoch)
        if 0 <= end < position:
            why = f"its log was cut at {end} after they were read (leader epoch {epoch}), and has grown again since"
            found.append(Range(partition, end, position, why))
    return found


def _read(store: Store) -> Notes:
    try:
        found = read_entry(store, _ENTRY)["partitions"]
        return {str(p): (int(position), int(epoch)) for p, (position, epoch) in found.items()}
    except FileNotFoundError:
        return {}
    except (*UNAVAILABLE, ValueError, LookupError, TypeError, AttributeError) as error:
        _log.warning("%s cannot be read (%s): this start cannot tell whether the input was cut", store, error)
        return {}
