"""The recorded scenarios: first batch, later batches, kill before the power cut, rewrite.

Promise: a recording starts from a disk on which everything is forced, except after a kill. A killed driver leaves
writes that are not forced, and its successor continues from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from unittest import mock

from oncebench.sinks.files.folder import PENDING
from proofs.crash_states.attempts import Workspace
from proofs.crash_states.calls import Recorded
from proofs.crash_states.disk import Disk, Tree, settled
from proofs.crash_states.folder import build, tree_of
from proofs.crash_states.recorder import Killed, Recorder, unrecorded

# Rows per partition of a batch that a first attempt begins, and of a batch of a later attempt: more input has come.
FIRST, LATER = 4, 6


@dataclass(frozen=True)
class Recording:
    """Recorded calls and their starting point.

    Attributes:
        start: the disk before the calls.
        log: the calls in their order.
        settled: the batches that Spark's commit log held on the disk before the calls.
        last: the newest batch that was begun.
    """

    start: Disk
    log: tuple[Recorded, ...]
    settled: frozenset[int]
    last: int


Scenario = Callable[[Workspace], Iterator[Recording]]


def first_batch(workspace: Workspace) -> Iterator[Recording]:
    """A new pipeline creates its folders and runs its first batch."""
    yield _recorded(workspace, Tree(frozenset(), frozenset()), 0)


def next_batches(workspace: Workspace, batches: int = 2) -> Iterator[Recording]:
    """A driver is started again and runs more batches; old journal entries are pruned."""
    yield _recorded(workspace, _after_attempt(workspace, 1), 1 + batches)


def killed_before(workspace: Workspace, batches: int = 2) -> Iterator[Recording]:
    """A driver is killed at any call of a batch.

    Its successor finishes the batch and runs more, and then the power is cut.
    """
    base = _after_attempt(workspace, 0)
    for calls in count():
        recorder, died = _killed(workspace, base, calls)
        if not died:
            break
        start, known = recorder.disk, len(recorder.log)
        with _names_from(2), recorder.listening():
            workspace.run_attempt(batches, LATER, recorder.put, _naming(recorder))
        yield Recording(start, tuple(recorder.log[known:]), frozenset({0}), batches)


def rewritten(workspace: Workspace) -> Iterator[Recording]:
    """A prepared file of a decided batch is gone, and a successor writes its partition again."""
    base = _after_attempt(workspace, 0)
    for calls in count():
        _killed(workspace, base, calls)
        if any("/decision-000000001." in path for path, _ in tree_of(workspace.root).names):
            break
    hidden = sorted((workspace.output / PENDING).iterdir())
    hidden[0].unlink()
    yield _recorded(workspace, tree_of(workspace.root), 2, frozenset({0}))


def _after_attempt(workspace: Workspace, last: int) -> Tree:
    """The tree that an attempt without faults leaves."""
    build(Tree(frozenset(), frozenset()), workspace.root)
    with _names_from(0):
        workspace.run_attempt(last, FIRST, unrecorded)
    return tree_of(workspace.root)


def _recorded(workspace: Workspace, base: Tree, last: int, done: frozenset[int] | None = None) -> Recording:
    build(base, workspace.root)
    before = frozenset(workspace.logs(unrecorded).done()) if done is None else done
    recorder = Recorder(workspace.root, settled(tree_of(workspace.root)))
    start = recorder.disk
    with _names_from(1), recorder.listening():
        workspace.run_attempt(last, FIRST, recorder.put, _naming(recorder))
    return Recording(start, tuple(recorder.log), before, last)


def _killed(workspace: Workspace, base: Tree, calls: int) -> tuple[Recorder, bool]:
    """Runs an attempt that is killed after `calls` calls; also returns whether it was killed."""
    build(base, workspace.root)
    recorder = Recorder(workspace.root, settled(tree_of(workspace.root)))
    try:
        with _names_from(1), recorder.listening(calls):
            workspace.run_attempt(1, FIRST, recorder.put, _naming(recorder))
    except Killed:
        return recorder, True
    return recorder, False


def _naming(recorder: Recorder) -> Callable[[str], None]:
    def name(actor: str) -> None:
        recorder.actor = actor

    return name


@contextmanager
def _names_from(attempt: int) -> Iterator[None]:
    """Makes file names repeatable, so that equal states are counted once.

    Each attempt has names of its own.
    """
    numbers = count(attempt << 64)
    with mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers))):
        yield


def edited(recording: Recording, edit: Callable[[Sequence[Recorded]], list[Recorded]]) -> Recording:
    """The recording of code that makes the edited calls."""
    return Recording(recording.start, tuple(edit(recording.log)), recording.settled, recording.last)
