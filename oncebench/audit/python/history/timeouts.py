"""Divides the events of a key into sessions where the pipeline's time-out did.

docs/anomalies.md has the rule. Promise: a session is divided only where two of its events are at least the time-out
apart, and where the quarantine shows that the pipeline divided it. So a session that was lost without a pause stays a
LOSS.

What can go wrong: nothing raises. Only keys with a record of a timer, or with a repeated event, are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from oncebench.audit.python.events import SEQS
from oncebench.audit.python.history.evidence import Evidence, held_text
from oncebench.audit.python.records import Ints


class Divided:
    """The events' sessions after the division.

    Attributes:
        session: of each event, the index into `keys`.
        keys: the session keys; one that was divided is there several times.
        never_ended: the (key, text) in quarantine that unfinished sessions explain.
    """

    def __init__(self, session: npt.NDArray[np.integer], keys: list[str]) -> None:
        self.session, self.keys = session, keys
        self.never_ended: set[tuple[bytes | None, bytes | None]] = set()


def divide(
    events: tuple[npt.NDArray[np.integer], ...],
    keys: list[str],
    repeated: Ints,
    evidence: Evidence,
    times_of: Callable[[npt.NDArray[np.integer]], Ints],
) -> Divided:
    """Divides sessions.

    Args:
        events: in reading order, their keys as indexes into `keys`, seqs, values and positions.
        repeated: the places of the events whose seq an earlier event of their key has.
        times_of: returns the times of the records at these positions, in ms.
    """
    key, seq, number, position = events
    names = {name for name, _ in evidence.never_ended}
    asked = [at for at, name in enumerate(keys) if name.encode() in names] if names else []
    wanted = np.union1d(np.array(asked, np.int64), key[repeated].astype(np.int64))
    divided = Divided(key, keys)
    if not len(wanted):
        return divided
    places = np.flatnonzero(np.isin(key, wanted))
    places = places[np.argsort(key[places], kind="stable")]
    times = times_of(position[places])
    divided.session, divided.keys = key.copy(), list(keys)
    for first, last in _runs(key[places]):
        here = places[first:last]
        columns = [here, seq[here], number[here], position[here], times[first:last]]
        _divide(divided, list(zip(*(column.tolist() for column in columns), strict=True)), evidence)
    return divided


def _divide(divided: Divided, events: list[tuple[int, int, int, int, int]], evidence: Evidence) -> None:
    """Divides the events (place, seq, number, position, time) of one key."""
    session = int(divided.session[events[0][0]])
    name = divided.keys[session]
    key = name.encode()
    held: dict[int, int] = {}
    newest = events[0][-1]
    for place, seq, number, position, time in events:
        paused = time - newest >= evidence.timeout_ms and position not in evidence.copied
        if paused and (len(held) == SEQS or (key, held_text(held)) in evidence.never_ended):
            _end(divided, key, held)
            session, held = len(divided.keys), {}
            divided.keys.append(name)
        newest = max(newest, time)
        held.setdefault(seq, number)
        divided.session[place] = session
    _end(divided, key, held)


def _end(divided: Divided, key: bytes, held: dict[int, int]) -> None:
    if len(held) < SEQS:
        divided.never_ended.add((key, held_text(held)))


def _runs(key: npt.NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Yields the bounds of each run of equal keys."""
    yield from pairwise([0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)])
