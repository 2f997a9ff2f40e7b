"""The order in which the pipeline read events: by batch, and within it by partition and offset."""

from __future__ import annotations

import numpy as np
import pytest

from oncebench.audit.python.history.evidence import Evidence
from oncebench.audit.python.history.reading_order import batches_of, in_several_partitions, reorder
from oncebench.audit.python.model import expected_output
from oncebench.audit.python.records import Ints, position_of
from tests.unit.audit.audit_world import Sent, event, input_table


def at(*places: tuple[int, int]) -> Ints:
    """The packed positions of (partition, offset)."""
    partitions, offsets = np.array(places, np.int64).reshape(-1, 2).T
    return position_of(partitions, offsets)


@pytest.mark.parametrize(
    ("partitions_of_keys", "several"),
    [
        ({0: [0]}, [False, False, False]),
        ({0: [0, 0, 0]}, [False, False, False]),
        ({0: [0, 1], 1: [1, 2]}, [False, True, False]),
        ({0: [0, 1], 1: [1], 2: [2]}, [False, True, False]),
        ({0: [0, 1], 2: [1, 2]}, [False, True, False]),
        ({0: [0, 1], 1: [2], 2: [0]}, [True, False, False]),
        ({1: [1], 2: [1, 0], 5: [0]}, [True, True, False]),
    ],
)
def test_a_key_is_in_several_partitions_only_if_two_of_them_hold_it(
    partitions_of_keys: dict[int, list[int]], several: list[bool]
) -> None:
    places = [(of, offset) for of, keys in partitions_of_keys.items() for offset in range(len(keys))]
    key = np.array([each for keys in partitions_of_keys.values() for each in keys])
    assert in_several_partitions(at(*places), key, 3).tolist() == several


def test_no_event_is_in_no_partition() -> None:
    assert in_several_partitions(at(), np.empty(0, np.int64), 2).tolist() == [False, False]
    assert batches_of(at(), [{0: 5}]).tolist() == []


def test_a_batch_reads_up_to_its_end_and_not_the_event_at_it() -> None:
    ends = [{0: 2, 1: 0}, {0: 2, 1: 1}, {0: 3, 1: 1}]
    places = at((0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1))
    assert batches_of(places, ends).tolist() == [0, 0, 2, 3, 1, 3]


def test_a_batch_without_a_partition_has_read_nothing_of_it() -> None:
    assert batches_of(at((0, 0), (1, 0), (2, 0)), [{0: 1}, {1: 1}]).tolist() == [0, 1, 2]


def test_a_batch_whose_end_is_below_an_older_one_has_read_nothing() -> None:
    assert batches_of(at((0, 4), (0, 5)), [{0: 5}, {0: 3}, {0: 6}]).tolist() == [0, 2]


def test_without_batches_every_event_is_in_the_same() -> None:
    assert batches_of(at((0, 0), (3, 9)), []).tolist() == [0, 0]


def test_only_moved_events_change_places_and_those_of_a_batch_keep_their_order() -> None:
    places = at(*((partition, offset) for partition in (0, 1) for offset in range(100)))
    moved = places % 3 > 0
    ends = [{0: 50, 1: 40}, {0: 60, 1: 100}, {0: 100}]
    numbers = batches_of(places, ends)
    found = reorder(places, moved, ends)
    assert found[~moved].tolist() == np.flatnonzero(~moved).tolist()
    assert found[moved].tolist() == sorted(np.flatnonzero(moved).tolist(), key=lambda place: (numbers[place], place))
    assert len(np.unique(found)) == 200
    assert not np.array_equal(found, np.arange(200))


def test_of_two_events_with_one_seq_that_of_the_earlier_batch_counts() -> None:
    """The partition of the later batch comes first by number."""
    sent = [Sent(1, seq, b"k", event("k", seq, 1, 7)) for seq in range(100)]
    sent.append(Sent(0, 0, b"k", event("k", 5, 900, 7)))

    def total(*batch_ends: dict[int, int]) -> int:
        return int(expected_output(input_table(sent), evidence=Evidence(batch_ends)).total[0, 1])

    assert total({1: 100}, {0: 1, 1: 100}) == 5
    assert total({0: 1}, {0: 1, 1: 100}) == total() == 904
