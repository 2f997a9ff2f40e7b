"""Readers that poll: new rows are returned once.

A row's place is the same in every read.
"""

from __future__ import annotations

import time
from itertools import pairwise

from oncebench.sinks.reader import LINE_BITS, POLL_SHARE, NotAnsweredError, Rows, Snapshots, place_in_file, rows_of


def some(*offsets: int) -> Rows:
    rows = [{"session_key": f"k{offset}", "j": 0} for offset in offsets]
    return rows_of([(0, offset) for offset in offsets], [1] * len(offsets), rows, "session_key", 9)


def test_a_poll_returns_rows_as_soon_as_there_are_some() -> None:
    looks = iter([Rows(), Rows(), some(1, 2)])
    started = time.monotonic()
    assert Snapshots(lambda: next(looks)).poll(30.0).offset == [1, 2]
    assert time.monotonic() - started < 5.0


def test_a_poll_without_rows_ends_in_time() -> None:
    started = time.monotonic()
    assert len(Snapshots(Rows).poll(0.05)) == 0
    assert 0.05 <= time.monotonic() - started < 5.0


def test_a_poll_that_waited_for_others_does_not_delay_the_next() -> None:
    looks = iter([Rows(), some(1)])

    def preempted() -> Rows:
        time.sleep(0.05)  # no processor time of ours
        return next(looks)

    started = time.monotonic()
    assert Snapshots(preempted).poll(5.0).offset == [1]
    assert time.monotonic() - started < 2.5  # by wall time the pause alone would take 5 s


def test_expensive_polls_stay_below_their_share_of_a_core() -> None:
    looks = 0

    def dear() -> Rows:
        nonlocal looks
        looks += 1
        until = time.process_time() + 0.01
        while time.process_time() < until:
            pass
        return Rows()

    Snapshots(dear).poll(0.5)
    assert looks <= 0.5 / 0.01 * POLL_SHARE + 2  # the first, and the one at the end


def test_a_read_takes_everything_and_reports_no_log() -> None:
    looks = iter([some(1), some(2, 3), Rows()])
    taken: list[int] = []
    report = Snapshots(lambda: next(looks)).read_to_end(lambda rows: taken.extend(rows.offset))
    assert taken == [1, 2, 3]
    assert (report.complete, report.log, report.ends) == (True, False, {})


def test_a_read_waits_for_a_sink_that_is_away() -> None:
    looks = iter([some(1), NotAnsweredError(), some(2), Rows()])

    def fresh() -> Rows:
        look = next(looks)
        if isinstance(look, Exception):
            raise look
        return look

    taken: list[int] = []
    Snapshots(fresh).read_to_end(lambda rows: taken.extend(rows.offset))
    assert taken == [1, 2]


def test_a_poll_continues_while_the_sink_is_away() -> None:
    looks = iter([NotAnsweredError(), some(1)])

    def fresh() -> Rows:
        look = next(looks)
        if isinstance(look, Exception):
            raise look
        return look

    assert Snapshots(fresh).poll(5.0).offset == [1]


def test_rows_are_converted_to_key_and_json_value() -> None:
    rows = rows_of([(3, 7)], [5], [{"session_key": 'a"b', "j": 1}], "session_key", 9)
    assert (rows.partition, rows.offset, rows.append_ms, rows.seen_us) == ([3], [7], [5], 9)
    assert (rows.key, rows.value) == ([b'a"b'], [b'{"session_key":"a\\"b","j":1}'])


def test_a_place_in_a_file_ascends_and_fits_the_audits_bits() -> None:
    places = [place_in_file("part-0", line) for line in (0, 1, 2**LINE_BITS - 1)]
    assert all(one < other for one, other in pairwise(places))
    assert len({place_in_file(f"part-{number}", 0) for number in range(1000)}) == 1000
    assert all(0 <= partition < 2**19 and 0 <= offset < 2**44 for partition, offset in places)
