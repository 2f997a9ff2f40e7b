"""Valid events, and the one reason for which any other record is rejected."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.events import MAX_VALUE_BYTES, Event, check

GOOD = {"session_key": "s-1", "seq": 5, "type": "entry_event", "value": 7, "scheduled_at": 1_700_000_000_000_000}


def encoded(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()


def test_a_valid_event_is_read_completely() -> None:
    assert check(b"s-1", encoded()) == Event(5, 7, 1_700_000_000_000_000)


@pytest.mark.parametrize(("seq", "kind"), [(0, "start_event"), (99, "end_event"), (1, "entry_event")])
def test_the_type_must_fit_the_place_in_the_session(seq: int, kind: str) -> None:
    assert isinstance(check(b"s-1", encoded(seq=seq, type=kind)), Event)
    for other in {"start_event", "entry_event", "end_event"} - {kind}:
        assert check(b"s-1", encoded(seq=seq, type=other)) == "wrong-fields"


def test_fields_beyond_the_five_are_allowed() -> None:
    assert isinstance(check(b"s-1", encoded(padding="x" * 100)), Event)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, encoded(), "null-key"),
        (None, None, "null-key"),
        (b"s-1", None, "null-value"),
        (b"s-1", b" " * (MAX_VALUE_BYTES + 1), "too-large"),
        (b"s-1", b"", "not-json"),
        (b"s-1", b"hello", "not-json"),
        (b"s-1", encoded() + b"{}", "not-json"),
        (b"s-1", b"\xff\xfe", "not-json"),
        (b"s-1", b"\xef\xbb\xbf" + encoded(), "not-json"),
        (b"s-1", encoded().replace(b": 7", b": NaN"), "not-json"),
        (b"s-1", b"[" * 60_000, "not-json"),
        (b"s-1", b"[]", "wrong-fields"),
        (b"s-1", b"null", "wrong-fields"),
        (b"s-1", b'"session_key"', "wrong-fields"),
        *[(b"s-1", without(name), "wrong-fields") for name in GOOD],
        (b"s-2", encoded(), "wrong-fields"),
        (b"\xff", encoded(session_key="\udcff"), "wrong-fields"),
        (b"s-1", encoded(session_key=1), "wrong-fields"),
        *[(b"s-1", encoded(seq=seq), "wrong-fields") for seq in (-1, 100, 5.0, "5", True, None, 10**400)],
        *[(b"s-1", encoded(value=value), "wrong-fields") for value in (-1, 1_000_000, 1.5, "1", False)],
        *[(b"s-1", encoded(scheduled_at=at), "wrong-fields") for at in (-1, 2**53 + 1, 1.0, "now")],
        *[(b"s-1", encoded(type=kind), "unknown-type") for kind in ("pause_event", "", 3, None, [])],
    ],
)
def test_an_invalid_record_gets_the_first_reason_that_applies(
    key: bytes | None, value: bytes | None, reason: str
) -> None:
    assert check(key, value) == reason


@given(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200))
def test_no_bytes_make_the_check_raise(key: bytes | None, value: bytes | None) -> None:
    assert isinstance(check(key, value), Event | str)
