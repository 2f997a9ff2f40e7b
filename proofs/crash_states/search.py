"""Builds every state that a power cut may leave, reads it, and runs a successor on it.

Promise: if the search finds nothing, no power cut within the rules of `disk` breaks the guarantee for a reader or keeps
a successor from finishing. This holds for every moment of the recording and every order of the tasks' calls. Each state
is judged once.

What can go wrong: too many states. The result reports their number.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from oncebench.delivery import journal
from oncebench.delivery.contract import AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.delivery.stores import posix
from proofs.crash_states.attempts import Pipeline, Workspace
from proofs.crash_states.broken import Edit
from proofs.crash_states.calls import describe
from proofs.crash_states.disk import Disk, Tree, everything, power_cuts
from proofs.crash_states.folder import build
from proofs.crash_states.orders import Order, moments
from proofs.crash_states.promises import FAIL, LOSS, ORPH, STUCK, Expected, Wrong, wrong
from proofs.crash_states.recorder import unrecorded
from proofs.crash_states.scenarios import FIRST, LATER, Recording, Scenario, edited

# Batches whose journal entries are kept here; one, so that a few batches are enough for pruning.
KEPT = 1
# Every start counts the journal's temporary files as old, as if it came more than an hour after the power cut.
LEFTOVER_S = -1.0
MEMORY = Path("/dev/shm")  # noqa: S108  (builds states in memory if the folder exists: fsync then costs nothing)


@dataclass(frozen=True)
class Example:
    """The first state with an anomaly.

    Attributes:
        calls: the calls before the power cut.
        lacks: differences between the disk and what a running machine showed.
        what: the anomaly.
    """

    calls: tuple[str, ...]
    lacks: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        calls: number of recorded calls, over all recordings.
        disks: number of different `Disk` values.
        states: number of different trees on the disk.
        wrong: number of states with each anomaly, by code.
        examples: the first state of each anomaly, by code.
        seconds: processor time.
    """

    calls: int
    disks: int
    states: int
    wrong: Mapping[str, int]
    examples: Mapping[str, Example]
    seconds: float


def search(
    pipeline: Pipeline, scenario: Scenario, edit: Edit | None = None, until: Collection[str] = (), every: int = 1
) -> Found:
    """Judges every state, or a sample of them.

    Args:
        pipeline: the recorded pipeline; its successors are the sound pipeline.
        scenario: the attempts to record.
        edit: changes the recorded calls into those of other code.
        until: the search stops when all these anomalies have occurred; empty: it never stops early.
        every: judges one of this many states; all states are counted.
    """
    started = time.process_time()
    calls, disks, states = 0, set[Disk](), set[Tree]()
    current: Recording | None = None
    counts: Counter[str] = Counter()
    examples: dict[str, Example] = {}
    with _workspaces(pipeline) as (recorded_at, successor):
        for recording, disk, order, tree in _states(recorded_at, scenario, edit, from_the_end=bool(until)):
            if recording is not current:
                current, calls = recording, calls + len(recording.log)
            disks.add(disk)
            if tree in states:
                continue
            states.add(tree)
            if len(states) % every:
                continue
            for code, what in judged(successor, recording, tree).items():
                counts[code] += 1
                if code not in examples:
                    examples[code] = Example(tuple(map(describe, order)), _lacks(disk, tree), what)
            if until and set(until) <= set(counts):
                break
    found = dict(sorted(counts.items()))
    return Found(calls, len(disks), len(states), found, examples, time.process_time() - started)


def _states(
    workspace: Workspace, scenario: Scenario, edit: Edit | None, *, from_the_end: bool
) -> Iterator[tuple[Recording, Disk, Order, Tree]]:
    """Every state; `from_the_end` starts at the end of a batch, where anomalies show first."""
    for made in scenario(workspace):
        recording = edited(made, edit) if edit else made
        times = moments(recording.start, recording.log)
        for disk, order in reversed(list(times)) if from_the_end else times:
            for tree in power_cuts(disk):
                yield recording, disk, order, tree


def judged(workspace: Workspace, recording: Recording, tree: Tree) -> Wrong:
    """The anomalies in a state, at once and after a successor."""
    build(tree, workspace.root)
    guarantee, logs = workspace.pipeline.support.guarantee, workspace.logs(unrecorded)
    batches = range(recording.last + 1)
    rows = {
        batch: logs.rows(batch) if (logs.checkpoint / "offsets" / str(batch)).exists() else FIRST for batch in batches
    }
    decided = recording.settled | {batch for batch in batches if _is_decided(workspace, batch)}
    try:
        visible = workspace.visible()
    except Exception as failure:
        return {FAIL: _in_a_line(failure)}
    found = wrong(guarantee, visible, Expected(rows, decided, recording.settled | logs.done()))
    for code, what in _later(workspace, recording.last + 1).items():
        found.setdefault(code, what)
    return found


def _later(workspace: Workspace, last: int) -> Wrong:
    """The anomalies after a successor ran the open batch and one more, and another started."""
    try:
        workspace.run_attempt(last, LATER, unrecorded)
        visible = workspace.visible()
        workspace.run_attempt(-1, LATER, unrecorded)
    except Exception as failure:
        return {STUCK: _in_a_line(failure)}
    guarantee, logs, batches = workspace.pipeline.support.guarantee, workspace.logs(unrecorded), range(last + 1)
    rows = {batch: logs.rows(batch) for batch in batches}
    found = wrong(guarantee, visible, Expected(rows, batches, batches))
    last_alone = Expected({last: rows[last]}, batches, batches)
    if guarantee == AT_MOST_ONCE and LOSS in wrong(EXACTLY_ONCE, visible, last_alone):
        found[LOSS] = f"batch {last}, which had no fault"
    if workspace.leftovers():
        found[ORPH] = workspace.leftovers()[0]
    return found


def _is_decided(workspace: Workspace, batch: int) -> bool:
    try:
        json.loads((workspace.checkpoint / "journal" / f"decision-{batch:09d}.0.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True


def _lacks(disk: Disk, tree: Tree) -> tuple[str, ...]:
    """The differences between the disk and what a running machine showed at this moment."""
    living = everything(disk)
    names, contents = dict(living.names), dict(living.contents)
    lost = [f"{path} is missing" for path in names if path not in dict(tree.names)]
    back = [f"{path} is still there" for path, _ in tree.names if path not in names]
    torn = [
        f"{path} has {len(data)} of its {len(contents[file])} bytes, and {data.count(0)} of these are 0"
        for file, data in tree.contents
        for path, number in tree.names
        if number == file and data != contents.get(file, data)
    ]
    return tuple(sorted(lost + back + torn))


def _in_a_line(failure: Exception) -> str:
    return f"{type(failure).__name__}: {' '.join(str(failure).split())}"


@contextmanager
def _workspaces(pipeline: Pipeline) -> Iterator[tuple[Workspace, Workspace]]:
    """The workspaces of the recorded pipeline and of its sound successors."""
    memory = MEMORY if MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="crash-states-", dir=memory) as folder,
        mock.patch.object(journal, "KEEP_BATCHES", KEPT),
        mock.patch.object(posix, "LEFTOVER_S", LEFTOVER_S),
    ):
        workspaces = []
        for name, running in (("recorded", pipeline), ("successor", pipeline.sound)):
            (Path(folder) / f"{name}-record").mkdir()
            workspaces.append(Workspace(running, Path(folder) / name, Path(folder) / f"{name}-record"))
        yield workspaces[0], workspaces[1]
