"""Commits to a table, each fenced: a driver that was overtaken commits nothing.

pyiceberg retries a failed append by itself, on the newest snapshot, and does not read the marker. A stopped driver that
continues would so append behind its successor. Therefore this module stages each commit anew for each try:

1. It loads the table's newest state, and looks for the snapshot of an earlier try.
2. It compares the properties of the sink_id (driver, marker, claim) with what this driver has last seen or written.
3. It commits once, and requires the table and the newest snapshot that step 1 has found.

Every start adds a snapshot without rows. So a start between steps 1 and 3 makes step 3 fail, even if nothing else
changes the newest snapshot.

Promise: a commit is in the table once, or not at all if an error is raised that says so. After an error without a
definite answer the table is looked up before the next try.

What can go wrong: another driver has taken the sink_id (`AnotherDriver`); somebody has altered or replaced the table
(`DeliveryFailed`); the catalog does not answer, or other writers are always faster (`Unanswered`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
)

from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, RefusedStart
from oncebench.delivery.failures.cause import RESTART
from oncebench_iceberg.catalog import CATALOG_ERRORS, NO_TABLE, Catalog, cause_of, first_line
from oncebench_iceberg.marker import Keys, Marker, claim_note, driver_note, generation_in

# A commit takes tens of ms, with hundreds of snapshots on a busy machine 300 ms. A compaction may come in between a few
# times.
LIMIT_S = 60.0
# Other writers finish a commit in this time. A random part keeps two writers from meeting again.
PAUSE_S = 0.02


class Unanswered(Exception):
    """No try of a commit got through within LIMIT_S; the last one may be in the table."""


@dataclass
class Commits:
    """The commits of one driver under one sink_id.

    Attributes:
        catalog: of the table.
        keys: names of the sink_id's properties.
        driver: random name of this start.
        generation: of this start.
    """

    catalog: Catalog
    keys: Keys
    driver: str
    generation: int
    _table: TableMetadata | None = None  # after this driver's start
    _seen: dict[str, str | None] = field(default_factory=dict)

    def take(self) -> TableMetadata:
        """Notes this driver as the newest one; returns the table's state.

        The note comes with a snapshot without rows.

        Raises:
            RefusedStart: a newer generation is noted.
            Unanswered: see the class.
        """
        note = {self.keys.driver: driver_note(self.driver, self.generation)}
        table = self._commit(_Step(note, files=()))
        self._table = table
        # Not the driver's note of `table`: after a lost answer it may be a successor's.
        self._seen = {**note, **{key: table.properties.get(key) for key in (self.keys.marker, self.keys.claim)}}
        return table

    @property
    def table(self) -> TableMetadata:
        """The table's state after the start, which data files are written for."""
        assert self._table is not None, "take() comes first"
        return self._table

    def claim(self, batch: int) -> None:
        """Notes that this driver writes a batch. Raises: see `append`."""
        self._commit(_Step({self.keys.claim: claim_note(batch, self.driver)}, files=None))

    def append(self, files: Sequence[DataFile], marker: Marker | None) -> None:
        """Adds data files as one snapshot, together with the marker.

        Raises:
            AnotherDriver: another driver has taken the sink_id; nothing was added.
            DeliveryFailed: the table was altered since the start; nothing was added.
            NoSuchTableError: the table is gone.
            Unanswered: see the class.
        """
        self._commit(_Step({}, files, marker))

    def _commit(self, step: _Step) -> TableMetadata:
        deadline, tried, last = time.monotonic() + LIMIT_S, set[int](), "other writers always committed first"
        while True:
            try:
                table = self.catalog.load()
                found = next((id for id in tried if table.metadata.snapshot_by_id(id)), None)
                if found is not None or (tried and _has(step, table.metadata)):
                    return self._note(step, table.metadata)
                self._stop_unless_ours(table.metadata)
                return self._note(step, self._try_once(step, table, tried))
            except CommitFailedException:
                pass
            except NO_TABLE:
                raise
            except CATALOG_ERRORS as error:
                if cause_of(error).permanent:
                    raise
                last = first_line(error)
            if time.monotonic() > deadline:
                raise Unanswered(last)
            time.sleep(PAUSE_S * (1 + random.random()))

    def _try_once(self, step: _Step, table: Table, tried: set[int]) -> TableMetadata:
        """Commits once on this state of the table; returns the new state."""
        staging = _small(table)
        transaction = Transaction(staging)
        producer = None
        properties = dict(step.properties)
        if step.files is not None:
            producer = transaction._append_snapshot_producer({})
            if step.marker is not None:
                sequence = table.metadata.next_sequence_number()
                marker = replace(step.marker, snapshot=producer.snapshot_id, sequence=sequence)
                properties[self.keys.marker] = marker.text()
            # The summary shows who made a snapshot, and how far the sink_id was.
            producer.snapshot_properties = dict(properties)
            for file in step.files:
                producer.append_data_file(file)
            producer.commit()
        if properties:
            transaction.set_properties(properties)
        step.written = properties
        tried.add(0 if producer is None else producer.snapshot_id)
        try:
            staging._do_commit(transaction._updates, (*transaction._requirements, *_requirements(table.metadata)))
        except CommitFailedException:
            if producer is not None:
                producer._clean_all_uncommitted()
            raise
        return cast("TableMetadata", staging.metadata)

    def _note(self, step: _Step, table: TableMetadata) -> TableMetadata:
        self._seen |= step.written
        return table

    def _stop_unless_ours(self, table: TableMetadata) -> None:
        """Raises unless the sink_id's notes and the table's form are those that this driver has read or written."""
        if self._table is None:
            self._refuse_newer(table)
            return
        if table.table_uuid != self._table.table_uuid or _form(table) != _form(self._table):
            raise DeliveryFailed(
                f"the Iceberg table {self.catalog.place} was altered or replaced since this driver started. {RESTART} "
                "The start compares the table's columns first."
            )
        for key, text in self._seen.items():
            if table.properties.get(key) != text:
                raise AnotherDriver(
                    f"the table property {key} of {self.catalog.place} has changed since this driver read it, "
                    f"and is now: {table.properties.get(key)}. Another driver has taken this sink_id, and this one "
                    "stops and has added nothing more. Let only one driver run per sink_id."
                )

    def _refuse_newer(self, table: TableMetadata) -> None:
        newest = generation_in(table.properties, self.keys)
        if newest > self.generation:
            raise RefusedStart(
                f"the Iceberg table {self.catalog.place} has seen generation {newest} of sink_id "
                f"{self.keys.sink_id!r}. This start is generation {self.generation} by its journal: the journal is "
                "new, older, or another's. Restore the newest journal with its checkpoint, or take a new checkpoint, "
                "sink_id and output."
            )


@dataclass
class _Step:
    """One commit.

    Attributes:
        properties: to set.
        files: to add by a snapshot; None: the commit makes no snapshot.
        marker: of the batch, without snapshot and sequence number.
        written: the properties of the last try.
    """

    properties: dict[str, str]
    files: Sequence[DataFile] | None
    marker: Marker | None = None
    written: dict[str, str] = field(default_factory=dict)


def _small(table: Table) -> Table:
    """Returns a table with the newest snapshot only, to stage a commit on.

    While pyiceberg stages a snapshot, it copies the whole metadata 14 times, with every snapshot. The catalog applies
    the staged commit to the whole metadata.
    """
    newest = table.metadata.current_snapshot()
    small = {"snapshots": [] if newest is None else [newest], "snapshot_log": []}
    metadata = table.metadata.model_copy(update=small)
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)


def _has(step: _Step, table: TableMetadata) -> bool:
    """Whether the notes of the last try are there: its snapshot may have expired already."""
    return bool(step.written) and all(table.properties.get(key) == text for key, text in step.written.items())


def _form(table: TableMetadata) -> tuple[int, int, str]:
    """Returns what data files depend on."""
    return table.current_schema_id, table.default_spec_id, table.location


def _requirements(table: TableMetadata) -> tuple[TableRequirement, ...]:
    """Returns the state that was compared, as what the commit requires."""
    newest = table.current_snapshot()
    return (
        AssertTableUUID(uuid=table.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=None if newest is None else newest.snapshot_id),
        AssertCurrentSchemaId(current_schema_id=table.current_schema_id),
        AssertDefaultSpecId(default_spec_id=table.default_spec_id),
    )
