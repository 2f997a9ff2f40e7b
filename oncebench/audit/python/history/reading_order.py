"""The order in which the pipeline read events: by batch, then by partition and offset.

docs/anomalies.md has the rule and its reasons. Promise: only events of keys in several partitions change places. The
order of any other key is that of its partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from oncebench.audit.python.records import Bools, Ints, offsets_of, partitions_of


def in_several_partitions(position: Ints, key: npt.NDArray[np.integer], keys: int) -> Bools:
    """[keys] Whether events of the key are in several partitions.

    The events are in the order of `position`.
    """
    starts = np.flatnonzero(np.diff(partitions_of(position))) + 1
    seen, several = np.zeros(keys, dtype=bool), np.zeros(keys, dtype=bool)
    for of_partition in np.split(key, starts):
        here = np.zeros(keys, dtype=bool)
        here[of_partition] = True
        several |= seen & here
        seen |= here
    return several


def reorder(position: Ints, moved: Bools, batch_ends: Sequence[Mapping[int, int]]) -> Ints:
    """Returns the places of the events in reading order.

    Args:
        position: of the events, ascending.
        moved: the events of keys in several partitions.
    """
    places = np.arange(len(position))
    at = np.flatnonzero(moved)
    batch = batches_of(position[at], batch_ends)
    places[at] = at[np.argsort(batch, kind="stable")]
    return places


def batches_of(position: Ints, batch_ends: Sequence[Mapping[int, int]]) -> Ints:
    """Returns for each position the place of its batch in `batch_ends`.

    The batch is the first one whose end is beyond the position. Without such a batch, the place is the number of
    batches.
    """
    partition, offset = partitions_of(position), offsets_of(position)
    batch = np.empty_like(position)
    for number in np.unique(partition).tolist():
        ends = np.maximum.accumulate([each.get(number, 0) for each in batch_ends])
        here = partition == number
        batch[here] = np.searchsorted(ends, offset[here], side="right")
    return batch
