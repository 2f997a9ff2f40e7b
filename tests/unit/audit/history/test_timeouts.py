"""A key's events are divided into sessions only where the pipeline's time-out did."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest

from oncebench.audit.python.history.evidence import Evidence, held_text
from oncebench.audit.python.history.timeouts import Divided, divide
from oncebench.audit.python.records import Ints

TIMEOUT_MS = 100
Event = tuple[int, int, int]  # index of the key, seq, time in ms; the value is the seq + 1
NAMES = ["a", "b"]


def held(seqs: Iterable[int], key: bytes = b"a") -> tuple[bytes, bytes]:
    """The quarantine's record of a session that held these seqs."""
    return key, held_text({seq: seq + 1 for seq in seqs})


def divided(events: list[Event], *proved: tuple[bytes, bytes], copied: Iterable[int] = ()) -> Divided:
    """Divides events that stand at the offsets from 50 on; `proved` is in quarantine."""
    key, seq, times = (np.array(column) for column in zip(*events, strict=True))
    position = np.arange(50, 50 + len(events))
    repeated = [at for at, event in enumerate(events) if event[:2] in [each[:2] for each in events[:at]]]

    def times_of(positions: npt.NDArray[np.integer]) -> Ints:
        found: Ints = times[positions - 50]
        return found

    evidence = Evidence(copied=frozenset(copied), never_ended=frozenset(proved), timeout_ms=TIMEOUT_MS)
    return divide((key, seq, seq + 1, position), NAMES, np.array(repeated, np.int64), evidence, times_of)


def test_without_repeated_events_and_records_of_timers_nothing_is_divided() -> None:
    found = divided([(0, 0, 0), (1, 0, 500), (0, 1, 1_000)])
    assert (found.session.tolist(), found.keys, found.never_ended) == ([0, 1, 0], NAMES, set())


@pytest.mark.parametrize(("pause_ms", "sessions"), [(TIMEOUT_MS - 1, [0, 0]), (TIMEOUT_MS, [0, 2])])
def test_a_session_is_divided_after_a_pause_as_long_as_the_time_out(pause_ms: int, sessions: list[int]) -> None:
    for start in (0, 10**12):
        assert divided([(0, 60, start), (0, 61, start + pause_ms)], held([60])).session.tolist() == sessions


def test_a_divided_session_explains_a_record_of_a_timer_for_each_part() -> None:
    found = divided([(0, 3, 0), (1, 0, 0), (0, 4, 50), (0, 3, 150)], held([3, 4]))
    assert (found.session.tolist(), found.keys) == ([0, 1, 0, 2], ["a", "b", "a"])
    assert found.never_ended == {held([3, 4]), held([3])}


def test_a_pause_without_a_record_of_its_timer_divides_nothing() -> None:
    for proved in ((), (held([3]),), (held([3, 4], b"b"),)):
        assert divided([(0, 3, 0), (0, 4, 50), (0, 3, 150)], *proved).session.tolist() == [0, 0, 0]


def test_an_event_that_the_pipeline_refused_divides_nothing() -> None:
    events = [(0, 3, 0), (0, 3, 100), (0, 4, 100)]
    assert divided(events, held([3]), copied=[51]).session.tolist() == [0, 0, 0]
    assert divided(events, held([3]), copied=[50, 52]).session.tolist() == [0, 2, 2]


def test_a_finished_session_is_divided_without_a_record_of_a_timer() -> None:
    whole = [(0, seq, 0) for seq in range(100)]
    found = divided([*whole, (0, 7, 99), (0, 7, 199)])
    assert found.session.tolist() == [0] * 101 + [2]
    assert found.never_ended == {held([7])}, "the finished session had no timer"


def test_a_pause_begins_with_the_newest_event_and_not_with_the_last() -> None:
    assert divided([(0, 1, 0), (0, 2, 90), (0, 3, 20), (0, 4, 130)], held([1, 2, 3])).session.tolist() == [0] * 4


def test_a_session_of_a_single_event_explains_the_record_of_its_timer() -> None:
    assert divided([(0, 5, 0)], held([5])).never_ended == {held([5])}


def test_the_events_of_several_keys_are_divided_each_in_their_own_order() -> None:
    events = [(key, seq, 200 * again + seq) for again in (0, 1) for seq in range(60) for key in (0, 1)]
    found = divided(events, held(range(60)), held(range(60), b"b"))
    assert found.session.tolist() == [0, 1] * 60 + [2, 3] * 60
    assert found.keys == ["a", "b", "a", "b"]
