"""Damages the checkpoint between two attempts, as a disk crash or an operator may damage it.

The pipeline is killed, its checkpoint is kept, and another attempt starts on a damaged copy.

Promise: the damage counts as unnoticed (`unrefused`) when the new attempt commits a batch, or has claimed or decided
one. The run then keeps the damaged checkpoint, because only that one records what was written, and the audit judges the
rows. The damage counts as noticed (`refused`, with the message) when the attempt ends by itself. The good checkpoint is
then put back and the pipeline starts on it, because an operator can mend a damage that is reported.

Failure modes: another fault kills the attempt first, or the run ends. The good checkpoint is then put back too, and the
fault counts as not exercised.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from oncebench.faults.context import OVERTAKEN, FaultContext, Injection, waiting
from oncebench.record import events

OFFSETS, COMMITS = "offsets", "commits"
BATCHES_BACK = 2  # the age of the older checkpoint
# Suffixes of the files that hold one version of the state: RocksDB's changes and snapshots, and the in-memory store's.
_STATE_SUFFIXES = frozenset({".changelog", ".zip", ".delta"})
# A batch takes one or two seconds and a restart in between ten. The limit leaves room for a busy machine.
MORE_BATCHES_S = 60.0


def damage_checkpoint(context: FaultContext, _seconds: float, *, damage: Callable[[Path], None]) -> Generator[None]:
    """Kills the pipeline and starts it on a damaged copy of its checkpoint."""
    with _copy_of_checkpoint(context, "damaged") as copy:
        try:
            damage(copy)
        except NothingThereError as nothing:
            context.idle(str(nothing))
            context.resume_pipeline()
            return
        with context.without_restarts():
            context.kill_pipeline()
            yield from _start_on(context, copy)


def roll_back(context: FaultContext, _seconds: float) -> Generator[None]:
    """Replaces the checkpoint by a copy that is BATCHES_BACK batches old, with a kill between."""
    with _copy_of_checkpoint(context, "older") as copy:
        context.resume_pipeline()
        moved = partial(_has_moved_on, context)
        end = time.monotonic() + MORE_BATCHES_S
        yield from waiting(lambda: moved() or time.monotonic() > end)
        if not moved():
            context.idle(f"no {BATCHES_BACK} more batches came within {MORE_BATCHES_S:g} s: make the load longer")
            return
        with context.without_restarts():
            context.kill_pipeline()
            yield from _start_on(context, copy)


def _start_on(context: FaultContext, other: Path) -> Generator[None]:
    """Starts an attempt on another checkpoint.

    Restores the original if the attempt refuses the other one or cannot start.
    """
    original = _sibling(context, "original")
    context.checkpoint.rename(original)
    started = False
    try:
        other.rename(context.checkpoint)
        before = _journal_marks(context.checkpoint)
        context.note(events.CHECKPOINT_DAMAGED)
        context.control.start_successor()
        started = True
        yield from waiting(lambda: bool(context.control.batches()) or not context.pipeline_alive())
    finally:
        accepted = started and (bool(context.control.batches()) or not _journal_marks(context.checkpoint) <= before)
        if accepted:
            shutil.rmtree(original)
        else:
            if started and context.pipeline_alive():  # the run ends before the attempt has done anything
                context.kill_pipeline()
            if context.cluster is not None:
                context.cluster.kill_executors()  # they may still write state below the folder
            shutil.rmtree(context.checkpoint, ignore_errors=True)
            original.rename(context.checkpoint)
    if accepted:
        context.note(events.UNREFUSED)
    elif context.later_hits():
        context.idle(OVERTAKEN)  # the handler of that later fault starts another attempt
    else:
        context.note(events.REFUSED, why=context.control.last_words())
        context.control.start_successor()


def _journal_marks(checkpoint: Path) -> set[str]:
    """Names of the claims and decisions in the pipeline's journal.

    An attempt that adds one may have written rows.
    """
    return {path.name for kind in ("claim", "decision") for path in (checkpoint / "journal").glob(f"{kind}-*.json")}


def _has_moved_on(context: FaultContext) -> bool:
    return any(line["batch"] >= context.batch + BATCHES_BACK for line in context.control.batches())


def _sibling(context: FaultContext, suffix: str) -> Path:
    return context.checkpoint.with_name(f"{context.checkpoint.name}.{suffix}")


@contextmanager
def _copy_of_checkpoint(context: FaultContext, suffix: str) -> Iterator[Path]:
    """A copy of the checkpoint, which the caller may move. It is deleted at the end."""
    copy = _sibling(context, suffix)
    try:
        shutil.copytree(context.checkpoint, copy)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def cut_entry(log: str, checkpoint: Path) -> None:
    """Removes the second half of the newest entry: a write that the disk never finished."""
    entry = _without_checksum(newest_entry(checkpoint / log))
    os.truncate(entry, entry.stat().st_size // 2)


def empty_entry(log: str, checkpoint: Path) -> None:
    """Empties the newest entry: a rename that reached the disk before the data."""
    os.truncate(_without_checksum(newest_entry(checkpoint / log)), 0)


def delete_entry(log: str, checkpoint: Path) -> None:
    """Deletes the newest entry."""
    newest_entry(checkpoint / log).unlink()


def flip_state_bit(checkpoint: Path) -> None:
    """Flips one bit in the newest state that a restart reads.

    The bit is in the middle of the largest file of the newest state version.
    """
    change = _without_checksum(newest_state_file(checkpoint))
    content = bytearray(change.read_bytes())
    content[len(content) // 2] ^= 1
    change.write_bytes(content)


def delete_checkpoint(checkpoint: Path) -> None:
    """Deletes everything in the folder."""
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


class NothingThereError(Exception):
    """The checkpoint has no file that this fault could damage."""


def newest_entry(log: Path) -> Path:
    """The entry of the newest batch in one of Spark's logs. Raises `NothingThereError`."""
    entries = [path for path in log.iterdir() if path.name.isdigit()] if log.exists() else []
    if not entries:
        raise NothingThereError(f"Spark's {log.name} has no entry yet")
    return max(entries, key=lambda path: int(path.name))


def newest_state_file(checkpoint: Path) -> Path:
    """Returns the largest file of the newest state version that a restart reads.

    Batch N writes version N + 1, one file per partition. A restart reads the version of the newest batch in the commit
    log. It overwrites the files that an open batch has left, without reading them.

    Raises `NothingThereError` if there is no such file yet.
    """
    read = int(newest_entry(checkpoint / COMMITS).name) + 1
    written = [
        path
        for path in checkpoint.glob("state/*/*/*.*")
        if path.stem.isdigit() and int(path.stem) <= read and path.suffix in _STATE_SUFFIXES
    ]
    if not written:
        raise NothingThereError("the state store has written nothing yet that a restart reads")
    return max(written, key=lambda path: (int(path.stem), path.stat().st_size))


def _without_checksum(entry: Path) -> Path:
    """Deletes the checksum file that Hadoop keeps next to a local file, and returns the file.

    Then Spark itself has to detect the damage, as on an object store, which has no such files.
    """
    entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    return entry


def damaging(damage: Callable[[Path], None]) -> Injection:
    """The injection that does this damage to the checkpoint."""
    return partial(damage_checkpoint, damage=damage)
