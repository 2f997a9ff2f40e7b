"""Partitions that wait for a transaction that does not end."""

from __future__ import annotations

from pipeline.starting.stalls import REPEAT_S, STALLED_S, Stalls, text


def test_a_wait_is_reported_once_it_has_lasted_and_then_repeated() -> None:
    stalls = Stalls()
    assert stalls.found({"0": (7, 9), "1": (3, 3)}, 0.0) == []
    assert stalls.found({"0": (7, 20)}, STALLED_S - 1) == []
    assert stalls.found({"0": (7, 20)}, STALLED_S) == [("0", 7, STALLED_S)]
    assert stalls.found({"0": (7, 30)}, STALLED_S + REPEAT_S - 1) == []
    assert stalls.found({"0": (7, 30)}, STALLED_S + REPEAT_S) == [("0", 7, STALLED_S + REPEAT_S)]


def test_a_busy_partition_whose_transactions_end_is_not_reported() -> None:
    stalls = Stalls()
    for at in range(0, 1000, 30):
        assert stalls.found({"0": (at, at + 5)}, float(at)) == []


def test_a_wait_that_ended_counts_anew() -> None:
    stalls = Stalls()
    assert stalls.found({"0": (7, 9)}, 0.0) == []
    assert stalls.found({"0": (9, 9)}, 10.0) == []
    assert stalls.found({"0": (7, 9)}, STALLED_S) == []


def test_the_message_names_partition_offset_and_the_command() -> None:
    said = text("in", "b:9092", ("3", 7, 95.0))
    assert "'in', partition 3: an open transaction at offset 7" in said
    assert said.endswith("--bootstrap-server b:9092 abort --topic in --partition 3 --start-offset 7")
