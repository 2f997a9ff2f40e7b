"""What is done to the checkpoint between two lives: what a crash of the disk, or a hand, may have left of it.

Promise: the pipeline is killed, its checkpoint is put aside, and another life is started on a damaged one. If that life
commits a batch, or has claimed or decided one, the damage was not seen (`unrefused`), and the run goes on with it, for
only there stands what was written; the audit says what it did to the rows. If it ends by itself, its words are noted
(`refused`), what was put aside is put back, and the pipeline is started on that: a damage that is told loudly can be
mended. What can go wrong: another fault kills it before either, or the run ends; then what was put aside is put back as
well, and the damage has tested nothing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from oncebench.faults.context import OVERTAKEN, Act, Stage, waiting

OFFSETS, COMMITS = "offsets", "commits"
BACK = 2  # batches that the older copy does not know
# What a version of the state is called: RocksDB's changes or whole, and those of the store in memory.
_CHANGES = frozenset({".changelog", ".zip", ".delta"})
# A batch takes a second or two, a restart in between ten; longer than both, on a busy machine too.
MORE_BATCHES_S = 60.0


def damaged(stage: Stage, _seconds: float, *, damage: Callable[[Path], None]) -> Generator[None]:
    """Kills, does the damage, starts."""
    with _copied(stage, "damaged") as spoilt:
        try:
            damage(spoilt)
        except NothingThereError as nothing:
            stage.idle(str(nothing))
            stage.go_on()
            return
        with stage.holding():
            stage.kill()
            yield from _started_on(stage, spoilt)


def rolled_back(stage: Stage, _seconds: float) -> Generator[None]:
    """Copies the checkpoint as it stands, lets the pipeline go on for BACK batches, kills it, and starts the copy."""
    with _copied(stage, "older") as copy:
        stage.go_on()
        moved = partial(_has_gone_on, stage)
        end = time.monotonic() + MORE_BATCHES_S
        yield from waiting(lambda: moved() or time.monotonic() > end)
        if not moved():
            stage.idle(f"no {BACK} more batches came within {MORE_BATCHES_S:g} s: make the load longer")
            return
        with stage.holding():
            stage.kill()
            yield from _started_on(stage, copy)


def _started_on(stage: Stage, other: Path) -> Generator[None]:
    """Starts on another checkpoint in the place of the one that is there, which comes back if that is refused, or can't
    be started at all."""
    aside = _named(stage, "aside")
    stage.checkpoint.rename(aside)
    started = False
    try:
        other.rename(stage.checkpoint)
        before = _marks(stage.checkpoint)
        stage.note("checkpoint-damaged")
        stage.lives.succeed()
        started = True
        yield from waiting(lambda: bool(stage.lives.batches()) or not stage.alive())
    finally:
        accepted = started and (bool(stage.lives.batches()) or not _marks(stage.checkpoint) <= before)
        if accepted:
            shutil.rmtree(aside)
        else:
            if started and stage.alive():  # the run ends before it has come to anything
                stage.kill()
            shutil.rmtree(stage.checkpoint, ignore_errors=True)
            aside.rename(stage.checkpoint)
    if accepted:
        stage.note("unrefused")
    elif stage.others():
        stage.idle(OVERTAKEN)  # what comes after that fault starts another life
    else:
        stage.note("refused", why=stage.lives.last_words())
        stage.lives.succeed()


def _marks(checkpoint: Path) -> set[str]:
    """The claims and decisions in the pipeline's journal: a life that has added to them may have written rows."""
    return {path.name for kind in ("claim", "decision") for path in (checkpoint / "journal").glob(f"{kind}-*.json")}


def _has_gone_on(stage: Stage) -> bool:
    return any(line["batch"] >= stage.batch + BACK for line in stage.lives.batches())


def _named(stage: Stage, word: str) -> Path:
    return stage.checkpoint.with_name(f"{stage.checkpoint.name}.{word}")


@contextmanager
def _copied(stage: Stage, word: str) -> Iterator[Path]:
    """A copy of the checkpoint as it is now. It may be moved away; what is left of it at the end is deleted."""
    copy = _named(stage, word)
    try:
        shutil.copytree(stage.checkpoint, copy)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def cut(log: str, checkpoint: Path) -> None:
    """Half of the newest entry is missing: a write that the disk never finished."""
    entry = _unguarded(newest(checkpoint / log))
    os.truncate(entry, entry.stat().st_size // 2)


def emptied(log: str, checkpoint: Path) -> None:
    """The newest entry is there and empty: a rename that came to the disk before its data."""
    os.truncate(_unguarded(newest(checkpoint / log)), 0)


def lost(log: str, checkpoint: Path) -> None:
    """The newest entry is gone."""
    newest(checkpoint / log).unlink()


def flipped(checkpoint: Path) -> None:
    """One bit is another in the middle of what the last batch wrote to the state store."""
    change = _unguarded(newest_change(checkpoint))
    content = bytearray(change.read_bytes())
    content[len(content) // 2] ^= 1
    change.write_bytes(content)


def gone(checkpoint: Path) -> None:
    """Nothing is in the folder."""
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


class NothingThereError(Exception):
    """There is nothing that could be damaged."""


def newest(log: Path) -> Path:
    """The entry of the newest batch in one of Spark's logs. Raises `NothingThereError`."""
    entries = [path for path in log.iterdir() if path.name.isdigit()] if log.exists() else []
    if not entries:
        raise NothingThereError(f"Spark's {log.name} has no entry yet")
    return max(entries, key=lambda path: int(path.name))


def newest_change(checkpoint: Path) -> Path:
    """Of the files that the last batch wrote to the state store (one for each partition) the largest. Raises
    `NothingThereError`."""
    written = [path for path in checkpoint.glob("state/*/*/*.*") if path.stem.isdigit() and path.suffix in _CHANGES]
    if not written:
        raise NothingThereError("the state store has written nothing yet")
    return max(written, key=lambda path: (int(path.stem), path.stat().st_size))


def _unguarded(entry: Path) -> Path:
    """The same, without the checksum that Hadoop keeps beside it: Spark itself is to see the damage, as where its
    checkpoint lies on a store without such files."""
    entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    return entry


def act(damage: Callable[[Path], None]) -> Act:
    """The act that does this damage."""
    return partial(damaged, damage=damage)
