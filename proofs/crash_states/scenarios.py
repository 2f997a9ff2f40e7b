"""What is recorded: a first batch, later ones, a driver that is killed before the power goes, one that writes anew.

Promise: a recording starts from a disk on which everything is forced, unless a kill came before: a killed driver leaves
behind what it had not forced, and its successor goes on from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from unittest import mock

from oncebench.sinks.files.reader import PENDING
from proofs.crash_states.calls import Recorded
from proofs.crash_states.disk import Disk, Tree, settled
from proofs.crash_states.folder import build, tree_of
from proofs.crash_states.lives import Home
from proofs.crash_states.recorder import Killed, Recorder, unrecorded

# Rows per partition of a batch that a first life begins, and of one that a later life begins: more input has come.
FIRST, LATER = 4, 6


@dataclass(frozen=True)
class Recording:
    """Calls, and where they start.

    Attributes:
        start: the disk before them.
        log: the calls, in the order in which they were made.
        settled: the batches that Spark's commit log held, on the disk, before.
        last: the newest batch that was begun.
    """

    start: Disk
    log: tuple[Recorded, ...]
    settled: frozenset[int]
    last: int


Scenario = Callable[[Home], Iterator[Recording]]


def first_batch(home: Home) -> Iterator[Recording]:
    """A pipeline that has never been started makes its folders and its first batch."""
    yield _recorded(home, Tree(frozenset(), frozenset()), 0)


def next_batches(home: Home, batches: int = 2) -> Iterator[Recording]:
    """A driver is started again, and makes some batches more; entries that are old enough are pruned."""
    yield _recorded(home, _lived(home, 1), 1 + batches)


def killed_before(home: Home, batches: int = 2) -> Iterator[Recording]:
    """A driver is killed at any call of a batch; its successor finishes it and makes more. Then the power goes."""
    base = _lived(home, 0)
    for calls in count():
        recorder, died = _killed(home, base, calls)
        if not died:
            break
        start, known = recorder.disk, len(recorder.log)
        with _names_from(2), recorder.listening():
            home.live(batches, LATER, recorder.put, _naming(recorder))
        yield Recording(start, tuple(recorder.log[known:]), frozenset({0}), batches)


def written_anew(home: Home) -> Iterator[Recording]:
    """A batch is decided, and what one of its tasks had prepared is gone: a successor writes that partition anew."""
    base = _lived(home, 0)
    for calls in count():
        _killed(home, base, calls)
        if any("/decision-000000001." in path for path, _ in tree_of(home.root).names):
            break
    hidden = sorted((home.output / PENDING).iterdir())
    hidden[0].unlink()
    yield _recorded(home, tree_of(home.root), 2, frozenset({0}))


def _lived(home: Home, last: int) -> Tree:
    """What a life without any harm leaves."""
    build(Tree(frozenset(), frozenset()), home.root)
    with _names_from(0):
        home.live(last, FIRST, unrecorded)
    return tree_of(home.root)


def _recorded(home: Home, base: Tree, last: int, done: frozenset[int] | None = None) -> Recording:
    build(base, home.root)
    before = frozenset(home.logs(unrecorded).done()) if done is None else done
    recorder = Recorder(home.root, settled(tree_of(home.root)))
    start = recorder.disk
    with _names_from(1), recorder.listening():
        home.live(last, FIRST, recorder.put, _naming(recorder))
    return Recording(start, tuple(recorder.log), before, last)


def _killed(home: Home, base: Tree, calls: int) -> tuple[Recorder, bool]:
    """A life that ends with its call number `calls`, if it has that many."""
    build(base, home.root)
    recorder = Recorder(home.root, settled(tree_of(home.root)))
    try:
        with _names_from(1), recorder.listening(calls):
            home.live(1, FIRST, recorder.put, _naming(recorder))
    except Killed:
        return recorder, True
    return recorder, False


def _naming(recorder: Recorder) -> Callable[[str], None]:
    def name(actor: str) -> None:
        recorder.actor = actor

    return name


@contextmanager
def _names_from(life: int) -> Iterator[None]:
    """The same names whenever the same is recorded, so that equal states are counted once; other ones in each life."""
    numbers = count(life << 64)
    with mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers))):
        yield


def edited(recording: Recording, edit: Callable[[Sequence[Recorded]], list[Recorded]]) -> Recording:
    """A recording of code that would have made other calls."""
    return Recording(recording.start, tuple(edit(recording.log)), recording.settled, recording.last)
