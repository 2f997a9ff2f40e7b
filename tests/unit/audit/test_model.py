"""The reference model: the expected rows, and the events that are invalid."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncebench.audit.python import events
from oncebench.audit.python.events import REASONS, parse_json, read_event
from oncebench.audit.python.model import Expected, expected_output
from oncebench.audit.python.records import keep, offsets_of, unpack
from tests.unit.audit.audit_world import Sent, event, input_table, make_world, rows_of, scheduled_us

KEY = "b-00000000"


def rows_in(expected: Expected) -> set[tuple[str, int, int, int, int]]:
    return {
        (key, j, int(expected.total[s, j]), int(expected.checksum[s, j]), int(expected.ended_at[s, j]))
        for s, key in enumerate(expected.session_keys)
        for j in range(20)
    }


def brute_force(sent: list[Sent]) -> tuple[set[tuple[str, int, int, int, int]], list[tuple[int, int, str]], set[str]]:
    """Rows, invalid events and unfinished sessions, as straight from the contract as can be."""
    sessions: dict[str, dict[int, dict[str, Any]]] = {}
    invalid = []
    rows: set[tuple[str, int, int, int, int]] = set()
    for each in sorted(sent, key=lambda sent: (sent.partition, sent.offset)):
        reason = brute_reason(each.key, each.value, sessions)
        if reason:
            invalid.append((each.partition, each.offset, reason))
            continue
        item = json.loads(each.value or b"")
        session = sessions.setdefault(item["session_key"], {})
        session[item["seq"]] = item
        if len(session) == 100:
            values = [session[seq]["value"] for seq in range(100)]
            made = rows_of(item["session_key"], values, session[99]["scheduled_at"])
            rows |= {(r["session_key"], r["j"], r["total"], r["checksum"], r["ended_at"]) for r in made}
    return rows, invalid, {key for key, session in sessions.items() if len(session) < 100}


def brute_reason(key: bytes | None, value: bytes | None, sessions: dict[str, dict[int, dict[str, Any]]]) -> str:
    if key is None:
        return "null-key"
    if value is None:
        return "null-value"
    if len(value) > 65_536:
        return "too-large"
    try:
        item = json.loads(str(value, "utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return "not-json"
    if not isinstance(item, dict) or {"session_key", "seq", "type", "value", "scheduled_at"} - set(item):
        return "wrong-fields"
    if not isinstance(item["session_key"], str) or [item["session_key"]] != decoded(key):
        return "wrong-fields"
    for name, top in (("seq", 99), ("value", 999_999), ("scheduled_at", 2**53)):
        if isinstance(item[name], bool) or not isinstance(item[name], int) or not 0 <= item[name] <= top:
            return "wrong-fields"
    if item["type"] not in ["start_event", "entry_event", "end_event"]:
        return "unknown-type"
    if (item["type"] == "start_event") != (item["seq"] == 0) or (item["type"] == "end_event") != (item["seq"] == 99):
        return "wrong-fields"
    session = sessions.get(item["session_key"], {})
    if len(session) == 100:
        return "after-end"
    return "repeated-seq" if item["seq"] in session else ""


def decoded(key: bytes) -> list[str]:
    try:
        return [str(key, "utf-8")]
    except UnicodeDecodeError:
        return []


def refuse(constant: str) -> None:
    raise ValueError(constant)


def agree(sent: list[Sent]) -> Expected:
    expected = expected_output(input_table(sent))
    rows, invalid, unfinished = brute_force(sent)
    found = expected.invalid
    assert rows_in(expected) == rows
    assert [
        (*unpack(position), REASONS[reason])
        for position, reason in zip(found.position.tolist(), found.reason, strict=True)
    ] == invalid
    assert set(expected.unfinished) == unfinished
    return expected


def test_finished_sessions_give_the_rows_of_the_contract() -> None:
    world = make_world(7, 3)
    expected = agree(list(world.sent))
    assert len(expected.session_keys) == 7
    assert rows_in(expected) == {
        (row["session_key"], row["j"], row["total"], row["checksum"], row["ended_at"])
        for row in (visible.row for visible in world.rows)
    }


def test_a_known_session_has_known_rows() -> None:
    sent = [Sent(0, seq, b"k", event("k", seq, seq, 1000 + seq)) for seq in range(100)]
    expected = expected_output(input_table(sent))
    assert expected.total[0].tolist() == [10 + 25 * j for j in range(20)]
    assert expected.checksum[0, 0] == 2777930530  # `printf "0=0;1=1;2=2;3=3;4=4;" | gzip | tail -c8 | od -tu4`
    assert expected.ended_at[0].tolist() == [1099] * 20
    assert (expected.last_partition[0], expected.last_offset[0]) == (0, 99)


def test_the_order_of_rows_in_the_file_and_a_position_read_twice_change_nothing() -> None:
    sent = list(make_world(4, 2, unfinished=1).sent)
    table = input_table([*sent, *sent[:150]])
    shuffled = table.take(np.random.default_rng(3).permutation(table.num_rows))
    first, second = expected_output(input_table(sent)), expected_output(shuffled)
    assert rows_in(first) == rows_in(second)
    assert first.session_keys == second.session_keys
    assert not second.invalid.counts()


def test_a_session_ends_when_all_events_are_there_not_when_the_end_event_is() -> None:
    sent = [Sent(0, at, b"k", event("k", seq, 5, at)) for at, seq in enumerate([99, *range(99)])]
    expected = expected_output(input_table(sent))
    assert expected.session_keys == ["k"]
    assert expected.last_offset.tolist() == [99]
    assert expected.ended_at[0, 0] == 0


def test_the_first_of_two_events_with_one_seq_wins() -> None:
    sent = [Sent(0, at, b"k", event("k", seq, at, 7)) for at, seq in enumerate([0, 1, 1, *range(2, 100)])]
    expected = expected_output(input_table(sent))
    assert (expected.invalid.counts(), expected.records) == ({"repeated-seq": 1}, 101)
    assert offsets_of(expected.invalid.position).tolist() == [2]
    assert expected.total[0, 0] == 0 + 1 + 3 + 4 + 5


def test_an_event_after_the_end_is_invalid_also_in_the_newest_session() -> None:
    sent = [Sent(0, seq, b"k", event("k", seq, 1, 7)) for seq in range(100)]
    sent += [Sent(0, 100, b"k", event("k", 50, 1, 7)), Sent(0, 101, b"l", event("l", 50, 1, 7))]
    expected = agree(sent)
    assert expected.invalid.counts() == {"after-end": 1}
    assert (expected.unfinished, expected.records) == ({"l": 1}, 102)


def test_a_key_in_two_partitions_waits_for_its_own_events_there_and_for_no_other() -> None:
    sent = [Sent(2 * int(seq >= 40), seq, b"k", event("k", seq, 1, 7)) for seq in range(100)]
    expected = agree([*sent, *(Sent(partition, 500, b"l", event("l", partition, 1, 7)) for partition in range(3))])
    assert expected.earlier == {0: ((0, 39),)}


def test_a_key_in_two_partitions_is_covered_only_when_both_are() -> None:
    sent = [Sent(int(seq >= 40), seq, b"k", event("k", seq, 1, 7)) for seq in range(100)]
    expected = agree(sent)
    assert (expected.last_partition.tolist(), expected.last_offset.tolist()) == ([1], [99])
    assert expected.earlier == {0: ((0, 39),)}


def test_a_key_in_three_partitions_waits_for_its_own_events_in_each_of_them() -> None:
    expected = agree([Sent(seq // 40, seq, b"k", event("k", seq, 1, 7)) for seq in range(100)])
    assert (expected.last_partition.tolist(), expected.earlier) == ([2], {0: ((0, 39), (1, 79))})


GOOD = {"session_key": KEY, "seq": 5, "type": "entry_event", "value": 3, "scheduled_at": 9}
BAD: list[tuple[str, bytes | None, bytes | None]] = [
    ("null-key", None, b"{}"),
    ("null-key", None, None),
    ("null-value", KEY.encode(), None),
    ("too-large", KEY.encode(), b"{" * 65_537),
    ("not-json", KEY.encode(), b""),
    ("not-json", KEY.encode(), json.dumps(GOOD).encode()[:-1]),
    ("not-json", KEY.encode(), b'{"a": NaN}'),
    ("not-json", KEY.encode(), b'{"a": [1, -Infinity]}'),
    ("not-json", KEY.encode(), b'{"a": "\xff"}'),
    ("not-json", KEY.encode(), b"\xef\xbb\xbf" + json.dumps(GOOD).encode()),
    ("not-json", KEY.encode(), json.dumps(GOOD).encode("utf-16")),
    ("not-json", KEY.encode(), b"[" * 60_000),
    ("wrong-fields", KEY.encode(), b"[]"),
    ("wrong-fields", KEY.encode(), b'"text"'),
    ("wrong-fields", KEY.encode(), b"7"),
    ("wrong-fields", KEY.encode(), b"null"),
    ("wrong-fields", b"other", json.dumps(GOOD).encode()),
    ("wrong-fields", b"\xff", json.dumps(GOOD).encode()),
    ("wrong-fields", b"\xff", json.dumps(GOOD | {"session_key": "\ufffd"}).encode()),
    *(
        ("wrong-fields", KEY.encode(), json.dumps({name: GOOD[name] for name in GOOD if name != missing}).encode())
        for missing in GOOD
    ),
    *(
        ("wrong-fields", KEY.encode(), json.dumps(GOOD | {name: value}).encode())
        for name in ("seq", "value", "scheduled_at")
        for value in (-1, 2**53 + 1, 2**70, 1.0, "1", None, True, [1])
    ),
    ("wrong-fields", KEY.encode(), json.dumps(GOOD | {"session_key": 7}).encode()),
    ("wrong-fields", b"\xed\xa0\x80", json.dumps(GOOD | {"session_key": "\ud800"}).encode()),
    ("wrong-fields", KEY.encode(), json.dumps(GOOD | {"seq": 100}).encode()),
    ("wrong-fields", KEY.encode(), json.dumps(GOOD | {"value": 1_000_000}).encode()),
    ("unknown-type", KEY.encode(), json.dumps(GOOD | {"type": "other"}).encode()),
    ("unknown-type", KEY.encode(), json.dumps(GOOD | {"type": None}).encode()),
    ("unknown-type", KEY.encode(), json.dumps(GOOD | {"type": {"a": 1}}).encode()),
    ("unknown-type", KEY.encode(), json.dumps(GOOD | {"type": "other", "seq": 0}).encode()),
    ("wrong-fields", KEY.encode(), json.dumps(GOOD | {"type": "start_event"}).encode()),
    ("wrong-fields", KEY.encode(), json.dumps(GOOD | {"seq": 0}).encode()),
    ("wrong-fields", KEY.encode(), json.dumps(GOOD | {"seq": 99}).encode()),
    ("wrong-fields", KEY.encode(), json.dumps(GOOD | {"type": "end_event"}).encode()),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "key", "value"), BAD, ids=[f"{n}-{bad[0]}" for n, bad in enumerate(BAD)])
def test_the_first_rule_that_is_broken_names_the_reason(reason: str, key: bytes | None, value: bytes | None) -> None:
    assert read_event(key, value) == reason


@pytest.mark.parametrize(
    "value",
    [
        json.dumps(GOOD | {"more": {"a": [1.5, None, "x" * 1000]}}).encode(),
        json.dumps(GOOD | {"more": 10**400}).encode(),
        b" \n" + json.dumps(GOOD, indent=3).encode() + b"\t",
        json.dumps(GOOD).replace("b-0", "\\u0062-0").encode(),
        json.dumps(GOOD).replace('"value": 3', '"value": 4, "value": 3').encode(),
        json.dumps(GOOD | {"more": "\ud800"}).encode(),
        json.dumps(GOOD | {"more": 0}).replace('"more": 0', '"more": 1e999').encode(),
    ],
    ids=["extra", "long-number", "spaces", "escapes", "repeated-field", "lone-surrogate", "float-overflow"],
)
def test_what_is_json_and_has_the_five_fields_is_valid(value: bytes) -> None:
    assert read_event(KEY.encode(), value) == (KEY, 5, 3, 9)


def test_regular_events_are_read_as_a_whole_into_small_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_event: bytes | None) -> Any:
        raise AssertionError("read by itself")

    monkeypatch.setattr(events, "read_event", refused)
    fields = [(0, 0, 0), *((seq, seq, 7) for seq in range(1, 99)), (99, 999_999, 2**53)]
    values = [event("kl"[seq % 2], *numbers) for seq, numbers in enumerate(fields)]
    values[5] = values[5].ljust(512)
    keys = [b"kl"[seq % 2 : seq % 2 + 1] for seq in range(100)]
    found = events.read_events(pa.table({"key": pa.array(keys, pa.binary()), "value": values}), keep)
    assert list(zip(found.seq.tolist(), found.number.tolist(), found.scheduled_us.tolist(), strict=True)) == fields
    assert (found.key.tolist(), found.keys, set(found.reason.tolist())) == ([0, 1] * 50, ["k", "l"], {events.VALID})
    columns = (found.key, found.seq, found.number, found.scheduled_us, found.reason)
    assert [column.dtype for column in columns] == [np.int32, np.int8, np.int32, np.int64, np.int8]


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=12),
        st.text(alphabet='{}[]":,.-+eE0123456789 \\untrfalsu\t\ud7ff', max_size=14).map(str.encode),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=6,
        ).map(lambda item: json.dumps(item).encode()),
    )
)
def test_the_fast_parser_decides_as_the_standard_parser_does(value: bytes) -> None:
    assert outcome(parse_json, value) == outcome(rule, value)


def rule(value: bytes) -> Any:
    return json.loads(value.decode("utf-8"), parse_constant=refuse)


def outcome(parse: Any, value: bytes) -> Any:
    try:
        return plain(parse(value))
    except ValueError:
        return "not JSON"


def plain(item: Any) -> Any:
    """Makes all numbers that fit no field equal.

    orjson turns an integer beyond 64 bits into a float.
    """
    if isinstance(item, dict):
        return {key: plain(value) for key, value in item.items()}
    if isinstance(item, list):
        return [plain(value) for value in item]
    if isinstance(item, float) or (isinstance(item, int) and abs(item) > 2**62):
        return "a number that fits no field"
    return repr(item)


def mutations() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    kinds = st.sampled_from(["drop", "repeat", "late", "break", "nokey", "novalue", "move"])
    return st.lists(st.tuples(kinds, st.integers(0, 10**6), st.integers(0, 10**6)), max_size=8)


@settings(max_examples=150, deadline=None)
@given(sessions=st.integers(1, 4), partitions=st.integers(1, 3), shuffle=st.randoms(), changes=mutations())
def test_the_model_agrees_with_a_second_one_on_any_input(
    sessions: int, partitions: int, shuffle: Any, changes: list[tuple[str, int, int]]
) -> None:
    world = make_world(sessions, partitions)
    sent = list(world.sent)
    for kind, where, what in changes:
        at = where % len(sent)
        each = sent[at]
        if kind == "drop":
            del sent[at]
        elif kind == "repeat":
            sent.insert(what % len(sent), Sent(each.partition, 0, each.key, each.value))
        elif kind == "late":
            sent.append(Sent(each.partition, 0, each.key, each.value))
        elif kind == "break":
            _, key, value = BAD[what % len(BAD)]
            sent.insert(at, Sent(each.partition, 0, key, value))
        elif kind == "nokey":
            sent[at] = Sent(each.partition, 0, None, each.value)
        elif kind == "novalue":
            sent[at] = Sent(each.partition, 0, each.key, None)
        else:
            sent[at] = Sent(what % partitions, 0, each.key, each.value)
    if sum(len(key) for key, *_ in changes) % 2:
        shuffle.shuffle(sent)
    agree([Sent(each.partition, offset, each.key, each.value) for offset, each in enumerate(sent)])


def test_an_empty_topic_expects_nothing() -> None:
    expected = expected_output(input_table([]))
    assert (expected.total.shape, expected.keys, expected.unfinished) == ((0, 20), [], {})


def test_events_have_their_positions() -> None:
    expected = expected_output(input_table(list(make_world(2, 2).sent)))
    assert offsets_of(expected.events.position).tolist() == [*range(100), *range(100)]
    assert expected.events.seq.tolist() == [*range(100), *range(100)]
    assert expected.events.scheduled_us.tolist() == [scheduled_us(s, seq) for s in (0, 1) for seq in range(100)]
    assert expected.events.key.tolist() == [0] * 100 + [1] * 100


def test_a_large_binary_column_is_accepted() -> None:
    table = input_table(list(make_world(1, 1).sent))
    wide = pa.table({name: table[name].cast(pa.large_binary()) if name in ("key", "value") else table[name]
                     for name in table.column_names})  # fmt: skip
    assert rows_in(expected_output(wide)) == rows_in(expected_output(table))


@pytest.mark.parametrize(("reason", "key", "value"), BAD, ids=[f"{n}-{bad[0]}" for n, bad in enumerate(BAD)])
def test_one_invalid_event_is_found_among_regular_ones(reason: str, key: bytes | None, value: bytes | None) -> None:
    sent = make_world(1, 1).sent
    expected = expected_output(input_table([*sent[:50], Sent(0, 2_000, key, value), *sent[50:]]))
    assert expected.invalid.counts() == {reason: 1}
    assert (len(expected.session_keys), expected.unfinished, expected.records) == (1, {}, 101)
