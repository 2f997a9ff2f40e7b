"""The journal, the durable mark of a guarantee: claims, decisions, generations of drivers.

Promise: once `claim` or `decide` has returned, the entry survives kill -9 and power loss. No two drivers can make the
same entry: the store of the journal (`oncebench.delivery.stores`) puts an entry in place and refuses an existing name.
What can go wrong: a file system without link or fsync, or an object store without conditional put; then the start
fails with the reason.

The journal is inside the checkpoint, in a folder or an object store, so that the two are copied together. Entries:

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
import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oncebench.delivery.errors import AnotherDriver, OlderDriver, RefusedStart
from oncebench.delivery.starts.process import process_name
from oncebench.delivery.stores.choose import Place, store_of
from oncebench.delivery.stores.entries import exists, put_exclusively, read_entry, refuse_damaged
from oncebench.delivery.stores.interface import Store

FOLDER = "journal"
_IDENTITY = "identity.json"
# Spark keeps the logs of 100 batches (spark.sql.streaming.minBatchesToRetain). A journal with fewer entries could not
# check a checkpoint that was rolled back by hand.
KEEP_BATCHES = 100
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

    Attributes:
        folder: the place of the entries.
        generation: of this driver.
        driver: a random name of this start. The sink notes it (`oncebench.delivery.starts.drivers`).
    """

    def __init__(self, folder: Place, generation: int, driver: str = "") -> None:
        self.folder = folder
        self.generation = generation
        self.driver = driver
        self._store: Store = store_of(folder)
        self._prunable: set[str] | None = None  # entries of batches; listed when the first ones are pruned

    @property
    def checkpoint(self) -> str:
        """The place of the checkpoint, for messages."""
        return str(self.folder).removesuffix(f"/{FOLDER}")

    def exceed(self, generation: int) -> None:
        """Takes a newer generation than this one, which the sink has seen of a copy of this journal."""
        if self.generation <= generation:
            self.check_still_ours()
            self.generation = _take_generation(self.folder, self.driver, generation + 1)

    def generations(self) -> Iterator[dict[str, Any]]:
        """Yields the entries of the newest starts on this checkpoint, this one included."""
        for name in self._store.names():
            if _GENERATION.fullmatch(name):
                with refuse_damaged(f"{self.folder}/{name}"), suppress(FileNotFoundError):
                    yield read_entry(self._store, name)

    def check_still_ours(self) -> None:
        """Raises AnotherDriver if a younger driver was started on this checkpoint."""
        newest = _newest_generation(self._store, self.generation)
        if newest > self.generation:
            raise AnotherDriver(
                f"another driver was started on this checkpoint ({self.folder}/{_generation_name(newest)}). This "
                f"driver, generation {self.generation}, stops and has written nothing more. Let only one driver run "
                "per checkpoint."
            )

    def claim(self, batch: int) -> bool:
        """Claims a batch for at-most-once. Returns False if an earlier driver claimed it already.

        Raises:
            AnotherDriver: a younger driver was started, or has claimed this batch.
            RefusedStart: the earlier claim is damaged.
        """
        self.check_still_ours()
        name = _claim_name(batch)
        if self._put(name, {"batch": batch, "generation": self.generation}):
            self.check_still_ours()  # a younger driver may have done the batch and pruned its claim
            return True
        self._refuse_younger(name)
        return False

    def is_claimed(self, batch: int) -> bool:
        """Whether at-most-once has claimed a batch."""
        return exists(self.folder, _claim_name(batch))

    def decide(self, batch: int, attempt: int, entry: dict[str, Any]) -> None:
        """Makes the irrevocable decision that a batch is committed.

        Args:
            batch: the batch id.
            attempt: 0, or how often lost partitions of this batch were written again.
            entry: the data that a commit needs, as JSON.

        Raises:
            AnotherDriver: a younger driver was started, or another driver has decided this batch.
            OlderDriver: an older driver has decided this batch since this one read its decisions.
        """
        self.check_still_ours()
        name = f"decision-{batch:09d}.{attempt}.json"
        if not self._put(name, {"batch": batch, "generation": self.generation, **entry}):
            self.check_still_ours()
            author = self._author(name)
            if author < self.generation:
                raise OlderDriver(
                    f"batch {batch} was decided late by an older driver, generation {author} ({self.folder}/{name}). "
                    f"This driver, generation {self.generation}, stops; readers never see its prepared rows, because "
                    "a start aborts them. Start again: the replay finishes the batch by that decision."
                )
            raise AnotherDriver(
                f"batch {batch} was decided by another driver ({self.folder}/{name}). This driver, generation "
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
            name = f"decision-{batch:09d}.{attempt}.json"
            try:
                with refuse_damaged(f"{self.folder}/{name}"):
                    found.append(_decision(self._store, name))
            except FileNotFoundError:
                break
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

    def newest_prepared(self, finished: int = -1) -> list[dict[str, Any]]:
        """Returns the prepared work of the newest decided batch.

        Each entry also has `batch`, `partition` and `finished`. The commit of the batch may be unfinished. If the
        commit log has the batch, the commit is finished: Spark writes that entry last.

        Args:
            finished: the newest batch in Spark's commit log; -1: none, or not known.
        """
        newest = self.newest_decision()
        if newest is None:
            return []
        return [
            {**entry["prepared"], "batch": newest, "partition": entry["partition"], "finished": newest <= finished}
            for made in self.decisions(newest)
            for entry in made.get("partitions", ())
            if entry["prepared"]
        ]

    def prune(self, batch: int) -> None:
        """Removes entries more than KEEP_BATCHES older than `batch`; Spark removes its own too.

        Lists the journal once: no older driver makes an entry any more.
        """
        if self._prunable is None:
            self._prunable = {name for name in self._store.names() if _ENTRY.fullmatch(name)}
        for name in sorted(self._prunable):
            entry = _ENTRY.fullmatch(name)
            if entry and int(entry[2]) < batch - KEEP_BATCHES:
                self._store.delete(name)
                self._prunable.discard(name)

    def _entries(self) -> Iterator[tuple[str, int]]:
        for name in self._store.names():
            entry = _ENTRY.fullmatch(name)
            if entry:
                yield entry[1], int(entry[2])

    def _author(self, name: str) -> int:
        with refuse_damaged(f"{self.folder}/{name}"):
            return int(read_entry(self._store, name)["generation"])

    def _refuse_younger(self, name: str) -> None:
        author = self._author(name)
        if author >= self.generation:
            raise AnotherDriver(
                f"{self.folder}/{name} was written by another driver (generation {author}). This driver, generation "
                f"{self.generation}, stops and writes nothing more. "
                "Let only one driver run per checkpoint."
            )

    def _put(self, name: str, entry: dict[str, Any]) -> bool:
        if self._prunable is not None:
            self._prunable.add(name)
        return put_exclusively(self.folder, name, entry)


def journal_of(checkpoint: Place) -> Place:
    """Returns the place of a checkpoint's journal."""
    return checkpoint / FOLDER if isinstance(checkpoint, Path) else checkpoint.below(FOLDER)


def checkpoint_id(checkpoint: Place) -> str:
    """Returns the random id of a checkpoint; a new checkpoint in the same place has another id.

    The first call makes the id. Sinks use it if their markers must not outlive the checkpoint. The journal must be
    open.
    """
    folder = journal_of(checkpoint)
    put_exclusively(folder, "checkpoint.json", {"id": uuid.uuid4().hex})
    with refuse_damaged(f"{folder}/checkpoint.json"):
        return str(read_entry(folder, "checkpoint.json")["id"])


def _claim_name(batch: int) -> str:
    return f"claim-{batch:09d}.json"


def _generation_name(generation: int) -> str:
    return f"generation-{generation:08d}.json"


def _newest_generation(store: Store, after: int = 0) -> int:
    """Returns the newest generation that is greater than `after`, or `after`."""
    found = (_GENERATION.fullmatch(name) for name in store.names(_generation_name(after) if after else ""))
    return max((int(match[1]) for match in found if match), default=after)


def open_journal(checkpoint: Place, identity: Identity, driver: str = "") -> Journal:
    """Opens a checkpoint's journal and takes the next generation.

    Older drivers then stop at their next step.

    Args:
        checkpoint: the place of Spark's checkpoint.
        identity: of the pipeline.
        driver: random name of this start (`SinkSettings.driver`); empty: a new one.

    Raises:
        RefusedStart: the checkpoint belongs to another pipeline, has batches but no journal, has a damaged journal, or
            cannot be in this place.
        NoStore: the object store of the checkpoint does not answer.
    """
    with store_of(checkpoint).refused("checkpoint"):
        return _open_journal(checkpoint, identity, driver or uuid.uuid4().hex)


def _open_journal(checkpoint: Place, identity: Identity, driver: str) -> Journal:
    folder = journal_of(checkpoint)
    store = store_of(folder)
    has_batches = any(name.isdigit() for name in store_of(checkpoint).below("offsets").names())
    if has_batches and not exists(folder, _IDENTITY):
        raise RefusedStart(
            f"{checkpoint} has batches but no journal: it was not made by this pipeline, or its journal was removed. "
            "Restore the newest journal folder (an older copy lacks the newest commits), or take a new checkpoint, "
            "sink_id and output."
        )
    store.prepare()
    if not put_exclusively(folder, _IDENTITY, asdict(identity)):
        _compare(checkpoint, _recorded_identity(folder), identity)
    generation = _take_generation(folder, driver, _newest_generation(store) + 1)
    for name in store.names():
        old = _GENERATION.fullmatch(name)
        if old and int(old[1]) < generation - KEEP_BATCHES:
            store.delete(name)
    return Journal(folder, generation, driver)


def _take_generation(folder: Place, driver: str, generation: int) -> int:
    """Takes the first free generation from this one on."""
    pid = os.getpid()
    start = {"pid": pid, "host": socket.gethostname(), "process": process_name(pid), "driver": driver}
    while not put_exclusively(folder, _generation_name(generation), start):
        generation += 1
    return generation


def newest_start(folder: Place) -> tuple[dict[str, Any], float] | None:
    """Returns the newest start's entry in a journal's folder and its Unix time; None: no start."""
    store = store_of(folder)
    name = _generation_name(_newest_generation(store))
    with refuse_damaged(f"{folder}/{name}"), suppress(FileNotFoundError):
        return read_entry(store, name), store.written_at(name)
    return None


def look_into(checkpoint: Place) -> tuple[Identity, Journal]:
    """Returns the identity and the journal of a checkpoint, for reading only.

    The journal has the newest generation, and takes none of its own.

    Raises:
        RefusedStart: the journal is damaged.
        FileNotFoundError: there is none.
    """
    folder = journal_of(checkpoint)
    return _recorded_identity(folder), Journal(folder, _newest_generation(store_of(folder)))


def _recorded_identity(folder: Place) -> Identity:
    """Returns the identity that the checkpoint was made with.

    In older checkpoints the field `guarantee` has the name `delivery`.
    """
    path = f"{folder}/{_IDENTITY}"
    with refuse_damaged(path):
        found = read_entry(folder, _IDENTITY).items()
        fields = {"guarantee" if name == "delivery" else name: value for name, value in found}
        recorded = Identity(**{known.name: fields.pop(known.name) for known in dataclasses.fields(Identity)})
    if fields:
        raise RefusedStart(
            f"{path} has fields that are unknown to this version: {sorted(fields)}. A newer version made the "
            "checkpoint. Start that version, or take a new checkpoint, sink_id and output."
        )
    return recorded


def _decision(store: Store, name: str) -> dict[str, Any]:
    """Returns a decision; every field that is read later must be there."""
    made = read_entry(store, name)
    if not isinstance(made["generation"], int):
        raise TypeError("generation is not a number")
    for entry in made.get("partitions", ()):
        _ = entry["partition"], entry["rows"], entry["digest"], entry["prepared"]
    return made


def _compare(checkpoint: Place, recorded: Identity, asked: Identity) -> None:
    for field, was in asdict(recorded).items():
        now = getattr(asked, field)
        if was != now:
            setting = " (with deliver: spark.sql.shuffle.partitions or repartition)" if field == "partitions" else ""
            raise RefusedStart(
                f"the checkpoint {checkpoint} was made with {field} {was!r}, and this start asks for {now!r}. "
                f"Start with {field} {was!r}{setting}, or take a new checkpoint, sink_id and output."
            )
