"""Commits to a table with fencing: a driver replaced by a successor commits nothing.

pyiceberg retries a failed append by itself, on the newest snapshot, and does not read the marker. So a stopped driver
that continues would append the batch of its successor again. Therefore this module stages a commit anew for each try:

1. It takes the table's newest state, and looks for the snapshot of an earlier try.
2. It compares the properties of the sink_id (driver, marker, claim) with what this driver has last seen or written.
3. It commits once, and requires the table and the newest snapshot that step 1 has found.

Every start adds a snapshot without rows. So a start between steps 1 and 3 makes step 3 fail, even if nothing else
changes the newest snapshot.

Promise: a commit is in the table once if no error is raised, and not at all if the error says so. It is never there
twice: after an error without a definite answer, the next try first looks for the commit in the table.

What can go wrong: another driver has taken the sink_id (`AnotherDriver`), or somebody has altered or replaced the table
(`DeliveryFailed`). The catalog does not answer, or other writers are always faster (`Unanswered`): the last try may
then be in the table.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.utils.properties import property_as_bool

from oncebench.delivery import digest
from oncebench.delivery.contract import NO_BATCH
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, RefusedStart
from oncebench.delivery.failures.cause import RESTART
from oncebench_iceberg.catalogs.catalog import Catalog
from oncebench_iceberg.catalogs.errors import CATALOG_ERRORS, NO_TABLE, cause_of, first_line
from oncebench_iceberg.files import access_of
from oncebench_iceberg.marker import (
    Keys,
    Marker,
    claim_note,
    driver_note,
    effective,
    generation_in,
    is_behind,
    noted_in,
)

# A commit takes tens of ms, with hundreds of snapshots on a busy machine 300 ms. A compaction may come in between a few
# times.
LIMIT_S = 60.0
# Other writers finish a commit in this time. A random part keeps two writers from meeting again.
PAUSE_S = 0.02
MERGE = TableProperties.MANIFEST_MERGE_ENABLED


Found = TypeVar("Found")


class Unanswered(Exception):
    """No try of a commit or load got through in LIMIT_S; the last commit may be in the table."""


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
    _own: tuple[int, int] | None = None  # id and sequence number of this driver's newest snapshot
    _access: dict[str, str] = field(default_factory=dict, repr=False)
    _fetched: bool = False  # whether `_access` was fetched for the next batch
    _newest: Table | None = field(default=None, repr=False)  # the table after this driver's last commit

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

    def access(self) -> Mapping[str, str]:
        """Returns what tasks need to reach the table's files. There may be secrets in it.

        A catalog may hand out keys that end in an hour, so keys are fetched for each batch. A claim has fetched them.

        Raises:
            NoSuchTableError: the table is gone.
            Unanswered: see the class.
        """
        fetched, self._fetched = self._fetched, False
        if self._access and not fetched:
            self._access = access_of(_repeated(self.catalog.load).io)
        return self._access

    def claim(self, batch: int) -> None:
        """Notes that this driver writes a batch. Raises: see `append`."""
        self._commit(_Step({self.keys.claim: claim_note(batch, self.driver)}, files=None))
        self._fetched = True

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
        def once() -> TableMetadata | None:
            try:
                table = self._load()
                if step.is_in(table.metadata):
                    return self._note(step, table.metadata)
                step.clean_up()
                self._stop_unless_ours(table.metadata)
                return self._note(step, self._try_once(step, table))
            except CommitFailedException:
                step.refused()
                return None

        return _repeated(once)

    def _load(self) -> Table:
        """Returns the newest state.

        The metadata grows with the table, so it is not read again if it is the same.
        """
        known, self._newest = self._newest, None  # an error below or in the commit must not leave an old state
        if known is not None and self.catalog.place.unchanged(known.metadata_location):
            return known
        table = self.catalog.load()
        self._access = access_of(table.io)
        return table

    def _try_once(self, step: _Step, table: Table) -> TableMetadata:
        """Commits once on this state of the table; returns the new state."""
        staging = _small(table)
        transaction = Transaction(staging)
        producer = None
        properties = dict(step.properties)
        if step.files is not None:
            producer = _append(transaction)
            if step.marker is not None:
                sequence = table.metadata.next_sequence_number()
                marker = replace(step.marker, snapshot=producer.snapshot_id, sequence=sequence)
                properties[self.keys.marker] = marker.text()
            elif self._table is None:
                properties |= self._marker_left(table.metadata, producer.snapshot_id)
            # The summary shows who made a snapshot, and how far the sink_id was.
            producer.snapshot_properties = dict(properties)
            for file in step.files:
                producer.append_data_file(file)
            producer.commit()
        if properties:
            transaction.set_properties(properties)
        step.tried(producer, properties, table.metadata.next_sequence_number())
        updates = _with_retention(transaction._updates, table.metadata)
        staging._do_commit(updates, (*transaction._requirements, *_requirements(table.metadata)))
        self._newest = staging
        return cast("TableMetadata", staging.metadata)

    def _marker_left(self, table: TableMetadata, snapshot: int) -> dict[str, str]:
        """Returns the marker that a start sets after a rollback of the noted batch; else nothing.

        Snapshots may expire behind the start's own. Then the noted marker would count again.
        """
        left, noted = effective(table, self.keys), noted_in(table, self.keys)
        if left == noted:
            return {}
        left = left or Marker(NO_BATCH, 0, digest.to_text(0), "", snapshot, table.next_sequence_number())
        return {self.keys.marker: left.text()}

    def _note(self, step: _Step, table: TableMetadata) -> TableMetadata:
        self._seen |= step.written
        self._own = step.made or self._own
        return table

    def _stop_unless_ours(self, table: TableMetadata) -> None:
        """Raises if others have changed the sink_id's notes or the table's form."""
        if self._table is None:
            self._refuse_newer(table)
            return
        if table.table_uuid != self._table.table_uuid or _form(table) != _form(self._table):
            raise DeliveryFailed(
                f"the Iceberg table {self.catalog.place} was altered or replaced since this driver started. {RESTART} "
                "The start compares the table's columns first."
            )
        if self._own is not None and not is_behind(table, *self._own):
            raise DeliveryFailed(
                f"the Iceberg table {self.catalog.place} was rolled back or replaced while this driver ran: it lacks "
                f"this driver's snapshot {self._own[0]}. Nothing was added. Set the table to its newest snapshot, then "
                "start again."
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


def _repeated(once: Callable[[], Found | None]) -> Found:
    """Calls until there is a result. A permanent error is raised at once.

    Raises:
        Unanswered: there is none within LIMIT_S.
    """
    deadline, last = time.monotonic() + LIMIT_S, "other writers always committed first"
    while True:
        try:
            found = once()
            if found is not None:
                return found
        except NO_TABLE:
            raise
        except CATALOG_ERRORS as error:
            if cause_of(error).permanent:
                raise
            last = first_line(error)
        if time.monotonic() > deadline:
            raise Unanswered(last)
        time.sleep(PAUSE_S * (1 + random.random()))


@dataclass
class _Step:
    """One commit.

    Attributes:
        properties: to set.
        files: to add by a snapshot; None: the commit makes no snapshot.
        marker: of the batch, without snapshot and sequence number.
        written: the properties of the last try, or of the try that is in the table.
    """

    properties: dict[str, str]
    files: Sequence[DataFile] | None
    marker: Marker | None = None
    written: dict[str, str] = field(default_factory=dict)
    _tries: dict[int, dict[str, str]] = field(default_factory=dict)  # snapshot -> properties of that try
    _sequence: dict[int, int] = field(default_factory=dict)  # snapshot -> its sequence number
    _last: _FastAppendFiles | None = None  # the snapshot of the last try
    _refused: list[_FastAppendFiles] = field(default_factory=list)

    @property
    def made(self) -> tuple[int, int] | None:
        """Id and sequence number of the snapshot of the last try, or of the try in the table."""
        return next(reversed(self._sequence.items()), None)

    def tried(self, producer: _FastAppendFiles | None, properties: dict[str, str], sequence: int) -> None:
        """Notes a try, before its commit is sent."""
        self.written, self._last = properties, producer
        if producer is not None:
            self._tries[producer.snapshot_id] = properties
            self._sequence[producer.snapshot_id] = sequence

    def refused(self) -> None:
        """Notes that the catalog has refused the last try.

        Its manifests stay until the table was looked up: a gateway may have sent the request twice. Then the answer to
        the second one is a refusal, and the first one is in the table.
        """
        if self._last is not None:
            self._refused.append(self._last)
            self._last = None

    def is_in(self, table: TableMetadata) -> bool:
        """Returns whether a try is in the table.

        Its snapshot shows that, or the last try's properties if that snapshot has expired.
        """
        for snapshot, properties in self._tries.items():
            if table.snapshot_by_id(snapshot):
                self.written = properties  # an earlier try may have arrived late
                self._sequence = {snapshot: self._sequence[snapshot]}
                return True
        return bool(self.written) and all(table.properties.get(key) == text for key, text in self.written.items())

    def clean_up(self) -> None:
        """Removes the manifests of refused tries.

        They are not in the table, see `is_in`, and cannot get there.
        """
        while self._refused:
            self._refused.pop()._clean_all_uncommitted()


_RETENTION = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")


def _with_retention(updates: tuple[TableUpdate, ...], table: TableMetadata) -> tuple[TableUpdate, ...]:
    """Keeps the branch's retention of snapshots, which pyiceberg's own update would remove."""
    main = table.refs.get(MAIN_BRANCH)
    if main is None:
        return updates
    kept = {name: getattr(main, name) for name in _RETENTION}
    return tuple(each.model_copy(update=kept) if isinstance(each, SetSnapshotRefUpdate) else each for each in updates)


def _append(transaction: Transaction) -> _FastAppendFiles:
    """Returns a new snapshot, which merges small manifests unless a table property forbids it.

    Every commit writes the list of all manifests, and adds one. By Iceberg's specification a table merges them;
    pyiceberg does so only if the property is true.
    """
    append = transaction.update_snapshot().merge_append()
    table = append._transaction.table_metadata
    schema, specs = table.schema(), table.specs().values()
    # pyiceberg cannot merge manifests of an earlier partitioning whose column was dropped.
    whole = all(schema.find_column_name(field.source_id) for spec in specs for field in spec.fields)
    append._merge_enabled = whole and property_as_bool(table.properties, MERGE, True)
    return cast("_FastAppendFiles", append)


def _small(table: Table) -> Table:
    """Returns a table with the newest snapshot only, to stage a commit on.

    While pyiceberg stages a snapshot, it copies the whole metadata 14 times, with every snapshot. The catalog applies
    the staged commit to the whole metadata.
    """
    newest = table.metadata.current_snapshot()
    small = {"snapshots": [] if newest is None else [newest], "snapshot_log": []}
    metadata = table.metadata.model_copy(update=small)
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)


def _form(table: TableMetadata) -> tuple[int, int, str]:
    """Returns what data files depend on."""
    return table.current_schema_id, table.default_spec_id, table.location


def _requirements(table: TableMetadata) -> tuple[TableRequirement, ...]:
    """Returns the requirements of a commit: the table still has the state that was compared."""
    newest = table.current_snapshot()
    return (
        AssertTableUUID(uuid=table.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=None if newest is None else newest.snapshot_id),
        AssertCurrentSchemaId(current_schema_id=table.current_schema_id),
        AssertDefaultSpecId(default_spec_id=table.default_spec_id),
    )
