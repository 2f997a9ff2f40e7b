"""A session: its key, its 100 events, and their bytes.

A session is one `start_event` (seq 0), 98 `entry_event`s (seq 1..98) and one `end_event` (seq 99), all with the same
session key. Everything here is a pure function of the seed and the numbers, so values are recomputed and never stored.

Random numbers come from a mixed counter (SplitMix64; Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
Generators", OOPSLA 2014), not from a library's stream. So an event can be made without the events before it, and the
bytes do not depend on a library's version.
"""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

EVENTS_PER_SESSION = 100
"""Fixed by the pipeline's contract: 20 output rows with 5 events each."""

LAST_SEQ = EVENTS_PER_SESSION - 1

VALUES = 1_000_000
"""Values are 0..999,999, so no sum of them overflows."""

STREAM_START, STREAM_SPREAD, STREAM_POSITION, STREAM_VALUE, STREAM_PAD, STREAM_PARTITION = range(6)
"""One independent stream of random numbers per purpose."""

MOST_KEYS = 10_000
"""Keys that are kept: 1 MB, and more than the open sessions of a load up to 600,000 events/s."""

MAX_RECORD_BYTES = 60_000
"""The pipeline sends records longer than 65,536 bytes to the quarantine topic."""

ENCODED = 1_024
ENCODED_BYTES = 131_072
"""So many events at most, or about so many bytes, are encoded at a time: 1 to 3 ms of work make no event late."""

_PAD_FIELD = ',"pad":"'
_STRIDE = np.uint64(7919)  # odd and large, so neighbouring records have different padding

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment: 2**64 / golden ratio, odd
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # its finaliser ("variant 13")


def event_type(seq: int) -> str:
    """The `type` of the event with number `seq` (0..99)."""
    if seq == 0:
        return "start_event"
    return "end_event" if seq == LAST_SEQ else "entry_event"


_MIDDLE = tuple(f'","seq":{seq},"type":"{event_type(seq)}","value":' for seq in range(EVENTS_PER_SESSION))


def session_key(seed: int, index: int) -> str:
    """The key of session number `index`: seed in hexadecimal, dash, number in eight digits."""
    return f"{seed:x}-{index:08d}"


class _Keys(dict[int, str]):
    """The keys of sessions by number, made once for the hundred events of a session."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def __missing__(self, index: int) -> str:
        if len(self) >= MOST_KEYS:
            self.clear()
        key = self[index] = session_key(self._seed, index)
        return key


@lru_cache(maxsize=1)  # a load has one seed
def _keys_of(seed: int) -> _Keys:
    return _Keys(seed)


def random_bits(seed: int, stream: int, counters: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """64 random bits per counter, a function of seed, stream and counter."""
    origin = _mix(np.array([seed], dtype=np.uint64) + _GOLDEN * np.array([stream + 1], dtype=np.uint64))
    return _mix(origin + _GOLDEN * counters)


def uniform(seed: int, stream: int, counters: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), with 53 random bits each."""
    return (random_bits(seed, stream, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def values(seed: int, session: npt.NDArray[np.uint32], seq: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The `value` of each event (0..999,999), determined by seed, session and seq."""
    counters = session.astype(np.uint64) * np.uint64(EVENTS_PER_SESSION) + seq
    return (random_bits(seed, STREAM_VALUE, counters) % np.uint64(VALUES)).astype(np.int64)


def partitions(seed: int, session: npt.NDArray[np.uint32], count: int, skew: float) -> npt.NDArray[np.int64]:
    """The partition of each session in a skewed load, determined by seed and session.

    The share of partition p of `count` (from 0) is proportional to 1 / (p + 1) ** skew (Zipf's law).
    """
    weights = 1.0 / np.arange(1, count + 1, dtype=np.float64) ** skew
    ends = np.cumsum(weights)[:-1] / weights.sum()
    return np.searchsorted(ends, uniform(seed, STREAM_PARTITION, session.astype(np.uint64)), side="right")


def encode(
    seed: int,
    session: npt.NDArray[np.uint32],
    seq: npt.NDArray[np.uint8],
    scheduled_us: npt.NDArray[np.int64],
    record_bytes: int = 0,
) -> tuple[list[str], list[str]]:
    """Record keys and record values of these events, in their order.

    `scheduled_us` is the time at which each event is due, in epoch µs. It becomes the event's field `scheduled_at`.
    A value equals `json.dumps(event, separators=(",", ":"))`. Keys and digits need no escapes, so an f-string makes the
    same text several times faster. Both are ASCII `str`; the client sends their bytes unchanged. A field `pad` makes a
    value `record_bytes` long if it is shorter (up to the ten bytes that the field itself needs).
    """
    keys = list(map(_keys_of(seed).__getitem__, session.tolist()))
    middle = map(_MIDDLE.__getitem__, seq.tolist())
    columns = zip(keys, middle, values(seed, session, seq).tolist(), scheduled_us.tolist(), strict=True)
    texts = [f'{{"session_key":"{k}{m}{v},"scheduled_at":{t}}}' for k, m, v, t in columns]
    if record_bytes:
        counters = session.astype(np.uint64) * np.uint64(EVENTS_PER_SESSION) + seq
        starts = counters * _STRIDE % np.uint64(MAX_RECORD_BYTES)
        texts = [_padded(text, record_bytes, at) for text, at in zip(texts, starts.tolist(), strict=True)]
    return keys, texts


def next_step(encoded: Sequence[str | bytes]) -> int:
    """Returns how many events to encode next.

    The number fits events that are about as long as the last ones encoded.
    """
    return min(ENCODED, max(1, len(encoded) * ENCODED_BYTES // sum(map(len, encoded))))


def _padded(text: str, record_bytes: int, start: int) -> str:
    missing = record_bytes - len(text) - len(_PAD_FIELD) - 1
    return f'{text[:-1]}{_PAD_FIELD}{_filling()[start : start + missing]}"}}' if missing > 0 else text


@cache
def _filling() -> str:
    """Text of 2 * MAX_RECORD_BYTES, six random bits per byte: it compresses to 3/4 at best."""
    bits = random_bits(0, STREAM_PAD, np.arange(MAX_RECORD_BYTES * 2 // 8, dtype=np.uint64))
    return b64encode(bits.tobytes(), altchars=b"-_").decode()[: MAX_RECORD_BYTES * 2]


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))
