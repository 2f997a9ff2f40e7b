"""The events of a session and their bytes."""

import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen import session
from loadgen.session import (
    MAX_RECORD_BYTES,
    encode,
    event_type,
    partitions,
    session_key,
    uniform,
    values,
)
from pipeline.events import Event, check

EVENTS = st.lists(
    st.tuples(st.integers(0, 10**8 - 1), st.integers(0, 99), st.integers(0, 2**53)), min_size=1, max_size=20
)


@given(st.integers(0, 2**64 - 1), EVENTS)
def test_a_value_equals_the_output_of_json_dumps(seed: int, events: list[tuple[int, int, int]]) -> None:
    session = np.array([e[0] for e in events], dtype=np.uint32)
    seq = np.array([e[1] for e in events], dtype=np.uint8)
    scheduled_us = np.array([e[2] for e in events], dtype=np.int64)
    keys, texts = encode(seed, session, seq, scheduled_us)
    numbers = values(seed, session, seq).tolist()
    for (index, event_seq, at_us), key, text, value in zip(events, keys, texts, numbers, strict=True):
        assert key == session_key(seed, index)
        event = {"session_key": key, "seq": event_seq, "type": event_type(event_seq), "value": value}
        assert text == json.dumps({**event, "scheduled_at": at_us}, separators=(",", ":"))


def test_a_session_starts_once_ends_once_and_has_98_entries_between() -> None:
    assert [event_type(seq) for seq in range(100)] == ["start_event", *["entry_event"] * 98, "end_event"]


def test_a_key_is_the_seed_in_hexadecimal_and_the_number_in_eight_digits() -> None:
    assert session_key(42, 7) == "2a-00000007"
    assert session_key(0, 12_345_678) == "0-12345678"


def test_values_use_their_whole_range_evenly() -> None:
    session = np.repeat(np.arange(2_000, dtype=np.uint32), 100)
    drawn = values(3, session, np.tile(np.arange(100, dtype=np.uint8), 2_000))
    assert drawn.min() >= 0
    assert drawn.max() <= 999_999
    tenths = np.bincount(drawn // 100_000, minlength=10) / len(drawn)
    assert np.abs(tenths - 0.1).max() < 0.005


def test_a_value_depends_only_on_seed_session_and_seq() -> None:
    session, seq = np.arange(10, dtype=np.uint32), np.full(10, 3, dtype=np.uint8)
    assert values(1, session, seq)[4] == values(1, session[4:5], seq[4:5])[0]
    assert len(set(values(1, session, seq).tolist())) == 10
    assert values(2, session, seq)[4] != values(1, session, seq)[4]


def test_the_streams_of_random_numbers_are_independent_of_each_other() -> None:
    counters = np.arange(50_000, dtype=np.uint64)
    streams = np.array([uniform(1, stream, counters) for stream in range(4)])
    assert np.abs(np.corrcoef(streams) - np.eye(4)).max() < 0.02
    assert np.abs(streams.mean(axis=1) - 0.5).max() < 0.01


@pytest.mark.parametrize("record_bytes", [200, 1_000, MAX_RECORD_BYTES])
def test_a_padded_value_has_its_length_and_the_same_fields(record_bytes: int) -> None:
    columns = np.array([0, 3], np.uint32), np.array([0, 99], np.uint8), np.array([5, 2**50], np.int64)
    keys, plain = encode(7, *columns)
    padded_keys, padded = encode(7, *columns, record_bytes)
    assert padded_keys == keys
    assert [len(text) for text in padded] == [record_bytes] * 2
    said = [[{**json.loads(text), "pad": None} for text in texts] for texts in (plain, padded)]
    assert said[0] == said[1]
    assert json.loads(padded[0])["pad"] != json.loads(padded[1])["pad"]
    assert encode(7, *columns, record_bytes)[1] == padded
    assert all(isinstance(check(key.encode(), text.encode()), Event) for key, text in zip(keys, padded, strict=True))


def test_a_value_that_is_long_enough_is_not_padded() -> None:
    columns = np.array([0], np.uint32), np.array([0], np.uint8), np.array([5], np.int64)
    assert encode(7, *columns, 50) == encode(7, *columns)


def test_padding_can_hardly_be_compressed() -> None:
    (_, (text,)) = encode(7, np.array([0], np.uint32), np.array([0], np.uint8), np.array([5], np.int64), 10_000)
    assert len(zlib.compress(text.encode(), 9)) > 7_000


def test_keys_that_were_forgotten_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_KEYS", 2)
    indices = [0, 1, 2, 1, 0, 3, 0]
    columns = np.array(indices, np.uint32), np.zeros(7, np.uint8), np.zeros(7, np.int64)
    for seed in (5, 6):
        assert encode(seed, *columns)[0] == [session_key(seed, index) for index in indices]


@pytest.mark.parametrize(("skew", "count"), [(0.0, 4), (0.5, 3), (1.0, 4), (2.0, 8), (10.0, 2)])
def test_skewed_sessions_have_the_declared_shares(skew: float, count: int) -> None:
    sessions = 200_000
    found = np.bincount(partitions(7, np.arange(sessions, dtype=np.uint32), count, skew), minlength=count)
    weights = [1 / (number + 1) ** skew for number in range(count)]
    for number, weight in enumerate(weights):
        share = weight / sum(weights)
        error = (share * (1 - share) / sessions) ** 0.5
        assert abs(found[number] / sessions - share) <= 4 * error, (number, found.tolist())


def test_the_partition_of_a_session_depends_on_no_other_session() -> None:
    sessions = np.arange(500, dtype=np.uint32)
    whole = partitions(7, sessions, 4, 1.0)
    assert partitions(7, sessions[99:103], 4, 1.0).tolist() == whole[99:103].tolist()
    assert partitions(8, sessions, 4, 1.0).tolist() != whole.tolist()
