"""A copy keeps what fits, in an order that shows whose header is whose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncebench.delivery.copies.fitting import Copy, fitted
from oncebench.delivery.copies.headers import HEADERS_DROPPED, KEY_BYTES, REASON, VALUE_BYTES, split

OURS = ((REASON, b"bad"), ("oncebench.source_topic", b"in"))
HEADERS = st.lists(
    st.tuples(st.sampled_from(["a", REASON, KEY_BYTES, VALUE_BYTES]), st.none() | st.binary(max_size=99)), max_size=5
).map(tuple)
BYTES = st.none() | st.binary(max_size=600)


@given(BYTES, BYTES, HEADERS, st.integers(350, 2_000))
def test_a_copy_fits_and_says_what_it_lacks(
    key: bytes | None, value: bytes | None, theirs: tuple[tuple[str, bytes | None], ...], limit: int
) -> None:
    whole = Copy(key, value, theirs, OURS)
    copy = fitted(whole, limit)
    assert copy.size <= limit
    senders, ours = split(copy.headers)
    assert senders == (() if HEADERS_DROPPED in ours else theirs)
    assert ours.get(HEADERS_DROPPED) in (None, b"%d" % len(theirs))
    for original, kept, name in ((key, copy.key, KEY_BYTES), (value, copy.value, VALUE_BYTES)):
        if original is None or kept is None:
            assert original is kept
            assert name not in ours
        else:
            assert original.startswith(kept)
            assert ours.get(name) == (None if kept == original else b"%d" % len(original))
    if copy != whole and (copy.key, copy.value) != (key, value):
        assert limit - copy.size < 100, "as much as fits"  # the two length headers are counted for both


def test_a_short_key_is_kept_and_two_long_ones_share_the_room() -> None:
    copy = fitted(Copy(b"k" * 10, b"v" * 5_000, (), OURS), 1_000)
    assert copy.key == b"k" * 10
    copy = fitted(Copy(b"k" * 5_000, b"v" * 5_000, (), OURS), 1_000)
    assert abs(len(copy.key or b"") - len(copy.value or b"")) <= 1
    copy = fitted(Copy(b"k" * 5_000, b"v", (), OURS), 1_000)
    assert copy.value == b"v"


def test_our_headers_are_those_from_the_last_reason_on() -> None:
    assert split([("a", b"1"), (REASON, b"theirs"), ("a", None), *OURS]) == (
        (("a", b"1"), (REASON, b"theirs"), ("a", None)),
        dict(OURS),
    )
    assert split([("a", b"1")]) == ((("a", b"1"),), {})
