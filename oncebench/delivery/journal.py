"""The journal, the durable mark of a guarantee: claims, decisions, generations of drivers.

Promise: once `claim` or `decide` has returned, the entry survives kill -9 and power loss, because file and folder are
fsynced. No two drivers can make the same entry: link(2) puts an entry in place and refuses an existing name. What can
go wrong: a file system without link or fsync; then the first entry fails with the reason.

The journal is inside the checkpoint folder, so that the two are copied together. Entries:

    identity.json                 the pipeline that this checkpoint belongs to
    checkpoint.json               a random id of this checkpoint
    generation-00000003.json      the third driver that was started here
    claim-000000012.json          at-most-once: batch 12 may have been written
    decision-000000012.0.json     exactly-once: batch 12 is decided; .1 rewrites lost partitions, and so on
    places.json                   the identity of input and output, see `oncebench.delivery.starts`
    drivers.json                  the newest starts that took the sink, see `oncebench.delivery.starts.drivers`
    gap-000000.json               a loss that an operator has accepted
    ended-000000.json             transactions that an operator has ended, see `oncebench.delivery.transactions`
    written/newest.json           the newest markers that must be in the sink

The counterpart in Flink is the committable in the checkpoint (TwoPhaseCommitSinkFunction.pendingCommitTransactions).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oncebench.delivery.durable import fsync_folder, make_folder, refuse_wrong_place
from oncebench.delivery.errors import AnotherDriver, RefusedStart

# Spark keeps the logs of 100 batches (spark.sql.streaming.minBatchesToRetain). A journal with fewer entries could not
# check a checkpoint that was rolled back by hand.
KEEP_BATCHES = 100
# A temporary file exists for the milliseconds of one fsync; after an hour its writer is dead.
LEFTOVER_S = 3600.0
# A folder's time stamp has steps of up to 10 ms, so a younger stamp than this may hide a later change.
STAMP_NS = 50_000_000
# What reading an entry raises if the entry is not as it was written.
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, IsADirectoryError)
_ENTRY = re.compile(r"(claim|decision)-(\d{9,})(?:\.(\d+))?\.json")
_GENERATION = re.compile(r"generation-(\d{8,})\.json")


@dataclass(frozen=True)
class Identity:
    """The pipeline that a checkpoint belongs to; a start with another identity is refused."""

    sink_id: str
    sink: str
    guarantee: str
    variant: str
    partitions: int


class Journal:
    """One driver's view of the journal folder. Make it with `open_journal`.

    `driver` is a random name of this start. The sink notes it (`oncebench.delivery.starts.drivers`).
    """

    def __init__(self, folder: Path, generation: int, driver: str = "") -> None:
        self.folder = folder
        self.generation = generation
        self.driver = driver
        self._listed: tuple[int, int] | None = None  # the folder's time stamp, and the newest generation then

    def exceed(self, generation: int) -> None:
        """Takes a newer generation than this one, which the sink has seen of a copy of this journal."""
        if self.generation <= generation:
            self.check_still_ours()
            self.generation = _take_generation(self.folder, self.driver, generation + 1)

    def generations(self) -> Iterator[dict[str, Any]]:
        """Yields the entries of the newest starts on this checkpoint, this one included."""
        for path in self.folder.iterdir():
            if _GENERATION.fullmatch(path.name):
                with refuse_damaged(path), suppress(FileNotFoundError):
                    yield dict(json.loads(path.read_text()))

    def check_still_ours(self) -> None:
        """Raises AnotherDriver if a younger driver was started on this checkpoint."""
        newest = self._newest_generation()
        if newest > self.generation:
            raise AnotherDriver(
                f"another driver was started on this checkpoint ({self.folder / _generation_name(newest)}). This "
                f"driver, generation {self.generation}, stops and has written nothing more. Let only one driver run "
                "per checkpoint."
            )

    def _newest_generation(self) -> int:
        """Returns the newest generation; lists the folder only if its time stamp has changed."""
        changed = self.folder.stat().st_mtime_ns
        if self._listed is not None and self._listed[0] == changed:
            return self._listed[1]
        newest = _newest_generation(self.folder)
        settled = time.time_ns() - changed > STAMP_NS
        self._listed = (changed, newest) if settled else None
        return newest

    def claim(self, batch: int) -> bool:
        """Claims a batch for at-most-once. Returns False if an earlier driver claimed it already."""
        self.check_still_ours()
        name = _claim_name(batch)
        if self._put(name, {"batch": batch, "generation": self.generation}):
            self.check_still_ours()  # a younger driver may have done the batch and pruned its claim
            return True
        self._refuse_younger(name)
        return False

    def is_claimed(self, batch: int) -> bool:
        """Whether at-most-once has claimed a batch."""
        return (self.folder / _claim_name(batch)).exists()

    def decide(self, batch: int, attempt: int, entry: dict[str, Any]) -> None:
        """Makes the irrevocable decision that a batch is committed.

        Args:
            batch: the batch id.
            attempt: 0, or how often lost partitions of this batch were written again.
            entry: the data that a commit needs, as JSON.
        """
        self.check_still_ours()
        name = f"decision-{batch:09d}.{attempt}.json"
        if not self._put(name, {"batch": batch, "generation": self.generation, **entry}):
            raise AnotherDriver(
                f"batch {batch} was decided by another driver ({self.folder / name}). This driver, generation "
                f"{self.generation}, stops; readers never see its prepared rows, because a start aborts them. Let only "
                "one driver run per checkpoint; if none runs, start one."
            )
        self.check_still_ours()

    def decisions(self, batch: int) -> list[dict[str, Any]]:
        """Returns every decision about a batch, oldest first; empty if it is undecided.

        Raises:
            AnotherDriver: a younger driver was started, or has decided this batch since the last check. The
                transactions that such a decision names may contain a later batch by then.
            RefusedStart: a decision is damaged.
        """
        self.check_still_ours()
        found: list[dict[str, Any]] = []
        for attempt in range(1_000_000):
            path = self.folder / f"decision-{batch:09d}.{attempt}.json"
            if not path.exists():
                break
            with refuse_damaged(path):
                found.append(_decision(path))
        for decision in found:
            if decision["generation"] > self.generation:
                raise AnotherDriver(
                    f"batch {batch} was decided by another driver, of generation {decision['generation']}. This "
                    f"driver, generation {self.generation}, stops and has written nothing more. Let only one driver "
                    "run per checkpoint."
                )
        return found

    def newest_decision(self) -> int | None:
        """Returns the highest batch with a decision, or None."""
        return max((batch for kind, batch in self._entries() if kind == "decision"), default=None)

    def newest_prepared(self) -> list[dict[str, Any]]:
        """Returns the prepared work of the newest decided batch, each with `batch` and `partition`.

        Its commit may be unfinished.
        """
        newest = self.newest_decision()
        if newest is None:
            return []
        return [
            {**entry["prepared"], "batch": newest, "partition": entry["partition"]}
            for made in self.decisions(newest)
            for entry in made.get("partitions", ())
            if entry["prepared"]
        ]

    def prune(self, batch: int) -> None:
        """Removes entries more than KEEP_BATCHES older than `batch`; Spark removes its own too."""
        for path in self.folder.iterdir():
            entry = _ENTRY.fullmatch(path.name)
            if entry and int(entry[2]) < batch - KEEP_BATCHES:
                path.unlink(missing_ok=True)

    def _entries(self) -> Iterator[tuple[str, int]]:
        for path in self.folder.iterdir():
            entry = _ENTRY.fullmatch(path.name)
            if entry:
                yield entry[1], int(entry[2])

    def _refuse_younger(self, name: str) -> None:
        with refuse_damaged(self.folder / name):
            author = int(json.loads((self.folder / name).read_text())["generation"])
        if author >= self.generation:
            raise AnotherDriver(
                f"{self.folder / name} was written by another driver (generation {author}). This driver, generation "
                f"{self.generation}, stops and writes nothing more. "
                "Let only one driver run per checkpoint."
            )

    def _put(self, name: str, entry: dict[str, Any]) -> bool:
        return put_exclusively(self.folder, name, entry)


def put_exclusively(folder: Path, name: str, entry: dict[str, Any]) -> bool:
    """Writes a JSON file durably, unless the name exists; returns whether it was written."""
    temporary = folder / f".{name}.{uuid.uuid4().hex}"
    try:
        _write_durably(temporary, entry)
        try:
            os.link(temporary, folder / name)
        except FileExistsError:
            return False
    finally:
        temporary.unlink(missing_ok=True)
    fsync_folder(folder)
    return True


def put_in_place_of(folder: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Writes a JSON file durably and atomically, also over an older one of this name."""
    temporary = folder / f".{name}.{uuid.uuid4().hex}"
    try:
        _write_durably(temporary, entry)
        temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_folder(folder)


def _write_durably(path: Path, entry: Mapping[str, Any]) -> None:
    with path.open("w") as file:
        json.dump(entry, file)
        file.flush()
        os.fsync(file.fileno())


def checkpoint_id(checkpoint: Path) -> str:
    """Returns the random id of a checkpoint; a new checkpoint in the same place has another id.

    The first call makes the id. Sinks use it if their markers must not outlive the checkpoint. The journal must be
    open.
    """
    folder = checkpoint / "journal"
    put_exclusively(folder, "checkpoint.json", {"id": uuid.uuid4().hex})
    with refuse_damaged(folder / "checkpoint.json"):
        return str(json.loads((folder / "checkpoint.json").read_text())["id"])


def _claim_name(batch: int) -> str:
    return f"claim-{batch:09d}.json"


def _generation_name(generation: int) -> str:
    return f"generation-{generation:08d}.json"


def _newest_generation(folder: Path) -> int:
    found = (_GENERATION.fullmatch(path.name) for path in folder.iterdir())
    return max((int(match[1]) for match in found if match), default=0)


def open_journal(checkpoint: Path, identity: Identity, driver: str = "") -> Journal:
    """Opens a checkpoint's journal and takes the next generation.

    Older drivers then stop at their next step.

    Args:
        checkpoint: Spark's folder.
        identity: of the pipeline.
        driver: random name of this start (`SinkSettings.driver`); empty: a new one.

    Raises:
        RefusedStart: the checkpoint belongs to another pipeline, has batches but no journal, has a damaged journal, or
            cannot be in this place.
    """
    with refuse_wrong_place("checkpoint", checkpoint):
        return _open_journal(checkpoint, identity, driver or uuid.uuid4().hex)


def _open_journal(checkpoint: Path, identity: Identity, driver: str) -> Journal:
    folder = checkpoint / "journal"
    has_batches = (checkpoint / "offsets").is_dir() and any(
        path.name.isdigit() for path in (checkpoint / "offsets").iterdir()
    )
    if has_batches and not (folder / "identity.json").exists():
        raise RefusedStart(
            f"{checkpoint} has batches but no journal: it was not made by this pipeline, or its journal was removed. "
            "Restore the newest journal folder (an older copy lacks the newest commits), or take a new checkpoint, "
            "sink_id and output."
        )
    make_folder(folder)  # an entry is only as durable as its folder
    remove_leftovers(folder, ".*.json.*")
    if not put_exclusively(folder, "identity.json", asdict(identity)):
        _compare(checkpoint, _recorded_identity(folder), identity)
    generation = _take_generation(folder, driver, _newest_generation(folder) + 1)
    for path in folder.iterdir():
        old = _GENERATION.fullmatch(path.name)
        if old and int(old[1]) < generation - KEEP_BATCHES:
            path.unlink(missing_ok=True)
    return Journal(folder, generation, driver)


def _take_generation(folder: Path, driver: str, generation: int) -> int:
    """Takes the first free generation from this one on."""
    start = {"pid": os.getpid(), "host": socket.gethostname(), "driver": driver}
    while not put_exclusively(folder, _generation_name(generation), start):
        generation += 1
    return generation


def newest_start(folder: Path) -> tuple[dict[str, Any], float] | None:
    """Returns the entry of the newest start in a journal's folder and its Unix time; None if there is none."""
    path = folder / _generation_name(_newest_generation(folder))
    with refuse_damaged(path), suppress(FileNotFoundError):
        return dict(json.loads(path.read_text())), path.stat().st_mtime
    return None


def look_into(checkpoint: Path) -> tuple[Identity, Journal]:
    """Returns the identity and the journal of a checkpoint, without a generation of one's own: for reading only.

    Raises:
        RefusedStart: the journal is damaged.
        FileNotFoundError: there is none.
    """
    folder = checkpoint / "journal"
    return _recorded_identity(folder), Journal(folder, _newest_generation(folder))


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Removes temporary files of dead writers, whose names match a pattern.

    A young file stays, because another driver may be about to link it.
    """
    for leftover in folder.glob(pattern):
        with suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_S:
                leftover.unlink()


def _recorded_identity(folder: Path) -> Identity:
    """Returns the identity that the checkpoint was made with.

    In older checkpoints the field `guarantee` has the name `delivery`.
    """
    path = folder / "identity.json"
    with refuse_damaged(path):
        found = json.loads(path.read_text()).items()
        fields = {"guarantee" if name == "delivery" else name: value for name, value in found}
        recorded = Identity(**{known.name: fields.pop(known.name) for known in dataclasses.fields(Identity)})
    if fields:
        raise RefusedStart(
            f"{path} has fields that are unknown to this version: {sorted(fields)}. A newer version made the "
            "checkpoint. Start that version, or take a new checkpoint, sink_id and output."
        )
    return recorded


def _decision(path: Path) -> dict[str, Any]:
    """Returns a decision; every field that is read later must be there."""
    made: dict[str, Any] = json.loads(path.read_text())
    if not isinstance(made["generation"], int):
        raise TypeError("generation is not a number")
    for entry in made.get("partitions", ()):
        _ = entry["partition"], entry["rows"], entry["digest"], entry["prepared"]
    return made


@contextmanager
def refuse_damaged(
    entry: Path,
    advice: str = "Restore the checkpoint with its journal, as they were just before the damage; without such a copy, "
    "take a new checkpoint, sink_id and output. Do not remove the entry: nothing else may show which rows were "
    "written.",
) -> Iterator[None]:
    """Converts errors of a JSON file that is not as it was written to RefusedStart, whose end is the advice."""
    try:
        yield
    except DAMAGE as error:
        raise RefusedStart(f"{entry} is damaged ({type(error).__name__}: {error}). {advice}") from error


def _compare(checkpoint: Path, recorded: Identity, asked: Identity) -> None:
    for field, was in asdict(recorded).items():
        now = getattr(asked, field)
        if was != now:
            setting = " (with deliver: spark.sql.shuffle.partitions or repartition)" if field == "partitions" else ""
            raise RefusedStart(
                f"the checkpoint {checkpoint} was made with {field} {was!r}, and this start asks for {now!r}. "
                f"Start with {field} {was!r}{setting}, or take a new checkpoint, sink_id and output."
            )
