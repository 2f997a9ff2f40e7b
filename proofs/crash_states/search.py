"""Builds every state that a power cut may leave, reads it, and lets a successor go on from it.

Promise: when nothing is found, no power cut within what `disk` allows, at no moment of what was recorded, with the
tasks' calls in any order, shows a reader anything that the guarantee forbids, or keeps a successor from finishing. Each
state is judged once. What can go wrong: too many states; the search says how many it has seen.
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
from proofs.crash_states.broken import Edit
from proofs.crash_states.calls import told
from proofs.crash_states.disk import Disk, Tree, everything, power_cuts
from proofs.crash_states.folder import build
from proofs.crash_states.lives import Home, Pipeline
from proofs.crash_states.orders import Way, moments
from proofs.crash_states.promises import FAIL, LOSS, ORPH, STUCK, Owed, Wrong, wrong
from proofs.crash_states.recorder import unrecorded
from proofs.crash_states.scenarios import FIRST, LATER, Recording, Scenario, edited

# Entries of this many batches are kept in what is recorded here, so that few batches are enough to prune some.
KEPT = 1
MEMORY = Path("/dev/shm")  # noqa: S108  (states are built in memory where there is such a folder: fsync costs nothing)


@dataclass(frozen=True)
class Example:
    """The first state in which something was wrong: the calls before it, what the disk lacks of them, what is wrong."""

    calls: tuple[str, ...]
    lacks: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        calls: recorded, all recordings together.
        disks: moments that differ in what is on the disk, or may be.
        states: that differ in what is on the disk.
        wrong: in how many states each thing was wrong.
        examples: the first of each.
        seconds: processor time that it took.
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
    """Judges every state, or a part of them.

    Args:
        pipeline: what is recorded; its successors are the sound pipeline.
        scenario: the lives that are recorded.
        edit: makes of the record what other code would have done.
        until: ends the search once all of this was wrong somewhere; empty: nothing ends it.
        every: of so many states one is judged; all are counted.
    """
    started = time.process_time()
    calls, disks, states = 0, set[Disk](), set[Tree]()
    current: Recording | None = None
    counts: Counter[str] = Counter()
    examples: dict[str, Example] = {}
    with _homes(pipeline) as (recorded_at, successor):
        for recording, disk, way, tree in _states(recorded_at, scenario, edit, from_the_end=bool(until)):
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
                    examples[code] = Example(tuple(map(told, way)), _lacks(disk, tree), what)
            if until and set(until) <= set(counts):
                break
    found = dict(sorted(counts.items()))
    return Found(calls, len(disks), len(states), found, examples, time.process_time() - started)


def _states(
    home: Home, scenario: Scenario, edit: Edit | None, *, from_the_end: bool
) -> Iterator[tuple[Recording, Disk, Way, Tree]]:
    """What is broken shows late in a batch: a search that ends with the first finds begins there."""
    for made in scenario(home):
        recording = edited(made, edit) if edit else made
        times = moments(recording.start, recording.log)
        for disk, way in reversed(list(times)) if from_the_end else times:
            for tree in power_cuts(disk):
                yield recording, disk, way, tree


def judged(home: Home, recording: Recording, tree: Tree) -> Wrong:
    """What is wrong in a state, at once or later."""
    build(tree, home.root)
    guarantee, logs = home.pipeline.support.guarantee, home.logs(unrecorded)
    batches = range(recording.last + 1)
    rows = {
        batch: logs.rows(batch) if (logs.checkpoint / "offsets" / str(batch)).exists() else FIRST for batch in batches
    }
    decided = recording.settled | {batch for batch in batches if _is_decided(home, batch)}
    try:
        shown = home.shown()
    except Exception as failure:
        return {FAIL: _in_a_line(failure)}
    found = wrong(guarantee, shown, Owed(rows, decided, recording.settled | logs.done()))
    for code, what in _later(home, recording.last + 1).items():
        found.setdefault(code, what)
    return found


def _later(home: Home, last: int) -> Wrong:
    """A successor finishes what is open and makes a batch more; another one starts."""
    try:
        home.live(last, LATER, unrecorded)
        shown = home.shown()
        home.live(-1, LATER, unrecorded)
    except Exception as failure:
        return {STUCK: _in_a_line(failure)}
    guarantee, logs, batches = home.pipeline.support.guarantee, home.logs(unrecorded), range(last + 1)
    rows = {batch: logs.rows(batch) for batch in batches}
    found = wrong(guarantee, shown, Owed(rows, batches, batches))
    if guarantee == AT_MOST_ONCE and wrong(EXACTLY_ONCE, shown, Owed({last: rows[last]}, batches, batches)).get(LOSS):
        found[LOSS] = f"batch {last}, which nothing disturbed"
    if home.leftovers():
        found[ORPH] = home.leftovers()[0]
    return found


def _is_decided(home: Home, batch: int) -> bool:
    try:
        json.loads((home.checkpoint / "journal" / f"decision-{batch:09d}.0.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True


def _lacks(disk: Disk, tree: Tree) -> tuple[str, ...]:
    """What a living machine would have shown at this moment, and the disk has not, or otherwise."""
    living = everything(disk)
    names, contents = dict(living.names), dict(living.contents)
    lost = [f"{path} is not there" for path in names if path not in dict(tree.names)]
    back = [f"{path} is still there" for path, _ in tree.names if path not in names]
    torn = [
        f"{path} has not all of its {len(contents[file])} bytes: {len(data)}, of which {data.count(0)} are 0"
        for file, data in tree.contents
        for path, number in tree.names
        if number == file and data != contents.get(file, data)
    ]
    return tuple(sorted(lost + back + torn))


def _in_a_line(failure: Exception) -> str:
    return f"{type(failure).__name__}: {' '.join(str(failure).split())}"


@contextmanager
def _homes(pipeline: Pipeline) -> Iterator[tuple[Home, Home]]:
    """Where a pipeline is recorded, and where its sound successors live."""
    memory = MEMORY if MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="crash-states-", dir=memory) as folder,
        mock.patch.object(journal, "KEEP_BATCHES", KEPT),
    ):
        homes = []
        for name, lives in (("recorded", pipeline), ("successor", pipeline.sound)):
            (Path(folder) / f"{name}-record").mkdir()
            homes.append(Home(lives, Path(folder) / name, Path(folder) / f"{name}-record"))
        yield homes[0], homes[1]
