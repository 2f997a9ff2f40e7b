"""Markers in a table: who drives a sink_id, and its newest batch.

A marker is a table property, because snapshots expire. The snapshot that added the batch has the same marker in its
summary, as evidence. A property survives a rollback of the table, so `effective` looks for the marker's snapshot among
the ancestors of the newest snapshot.

    oncebench.driver.SINK_ID = {"driver": "..", "generation": 3}
    oncebench.marker.SINK_ID = {"batch": 7, "rows": 100, "digest": "..", "driver": "..", "snapshot": 1, "sequence": 9}
    oncebench.claim.SINK_ID = {"batch": 7, "driver": ".."}

Promise: a batch that the table has lost by a rollback has no marker.

What can go wrong: other writers commit after the rollback, and every snapshot from before it expires. Then nothing
shows the rollback, and the batch counts as written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from oncebench.delivery import digest
from oncebench.delivery.contract import NO_BATCH, WHOLE_BATCH, Holder, Mark
from oncebench.delivery.errors import RefusedStart


@dataclass(frozen=True)
class Keys:
    """The names of one sink_id's table properties."""

    sink_id: str

    @property
    def driver(self) -> str:
        """Holds the newest driver."""
        return f"oncebench.driver.{self.sink_id}"

    @property
    def marker(self) -> str:
        """Holds the newest batch; also in the summary of the batch's snapshot."""
        return f"oncebench.marker.{self.sink_id}"

    @property
    def claim(self) -> str:
        """Holds the newest batch that at-most-once has claimed."""
        return f"oncebench.claim.{self.sink_id}"


@dataclass(frozen=True)
class Marker:
    """A batch in the table.

    Attributes:
        batch: its number.
        rows: number of its rows.
        digest: of its rows, as `oncebench.delivery.digest` stores it.
        driver: random name of the start that wrote it.
        snapshot: id of the snapshot that added it.
        sequence: sequence number of that snapshot.
    """

    batch: int
    rows: int
    digest: str
    driver: str
    snapshot: int = 0
    sequence: int = 0

    def text(self) -> str:
        """Returns the form that table and summary store."""
        return json.dumps(asdict(self), sort_keys=True)

    def mark(self) -> Mark:
        """Returns the form that the protocols compare."""
        return Mark(self.batch, self.rows, digest.from_text(self.digest), self.driver)


def effective(table: TableMetadata, keys: Keys) -> Marker | None:
    """Returns the newest batch of a sink_id in the newest snapshot; None if there is none."""
    noted = noted_in(table, keys)
    oldest: Snapshot | None = None
    for snapshot in ancestors_of(table.current_snapshot(), table):
        if noted is not None and snapshot.snapshot_id == noted.snapshot:
            return noted
        there = snapshot.summary and snapshot.summary.additional_properties.get(keys.marker)
        if there:  # the newest one that is left: the noted batch was taken back
            return _marker(there, keys.marker)
        oldest = snapshot
    if noted is None or oldest is None:
        return None
    # Maintenance expires the oldest snapshots, so the noted one may be behind the oldest one that is left. It is not if
    # an older snapshot is left: then the table was set back to that one. Some programs also erase an expired parent's
    # id, so the parent shows nothing.
    return noted if _may_be_behind(oldest, noted.snapshot, noted.sequence, table) else None


def noted_in(table: TableMetadata, keys: Keys) -> Marker | None:
    """Returns the marker in the table's property, also if the table has lost its batch."""
    return _marker(table.properties.get(keys.marker), keys.marker)


def is_behind(table: TableMetadata, snapshot: int, sequence: int) -> bool:
    """Returns whether the newest snapshot has come after this one.

    The answer depends on the snapshots that are left.
    """
    oldest: Snapshot | None = None
    for each in ancestors_of(table.current_snapshot(), table):
        if each.snapshot_id == snapshot:
            return True
        oldest = each
    return oldest is not None and _may_be_behind(oldest, snapshot, sequence, table)


def _may_be_behind(oldest: Snapshot, snapshot: int, sequence: int, table: TableMetadata) -> bool:
    """Whether an unseen snapshot may have expired before the oldest ancestor that is left.

    It has not if the table still has it, for example after CREATE OR REPLACE TABLE. Tags and branches keep expired
    ancestors, and so show nothing.
    """
    kept = {ref.snapshot_id for ref in table.refs.values()}
    there = table.snapshot_by_id(snapshot) is not None and snapshot not in kept
    return (oldest.sequence_number or 0) > sequence and not there


def driver_note(driver: str, generation: int) -> str:
    """Returns the note of a driver."""
    return json.dumps({"driver": driver, "generation": generation}, sort_keys=True)


def generation_in(properties: Mapping[str, str], keys: Keys) -> int:
    """Returns the newest generation that is noted; 0 if none is."""
    found = _object(properties.get(keys.driver), keys.driver)
    try:
        return int(found.get("generation", 0))
    except (TypeError, ValueError) as error:
        raise _damaged(keys.driver) from error


def claim_note(batch: int, driver: str) -> str:
    """Returns the note of a claimed batch."""
    return json.dumps({"batch": batch, "driver": driver}, sort_keys=True)


def holder_of(table: TableMetadata, keys: Keys) -> Holder | None:
    """Returns what drivers of a sink_id have left in the table; None: nothing."""
    if not {keys.driver, keys.marker, keys.claim} & table.properties.keys():
        return None
    return Holder.of(marks_of(table, keys), generation_in(table.properties, keys))


def marks_of(table: TableMetadata, keys: Keys) -> dict[int, Mark]:
    """Returns the newest batch or claim of a sink_id as the mark of the whole batch."""
    marker = effective(table, keys)
    found = [] if marker is None or marker.batch == NO_BATCH else [marker.mark()]
    claim = _object(table.properties.get(keys.claim), keys.claim)
    if claim:
        try:
            found.append(Mark(int(claim["batch"]), 0, 0, str(claim["driver"])))
        except (LookupError, TypeError, ValueError) as error:
            raise _damaged(keys.claim) from error
    return {WHOLE_BATCH: max(found, key=lambda mark: mark.batch)} if found else {}


def _marker(text: str | None, key: str) -> Marker | None:
    if text is None:
        return None
    try:
        return Marker(**_object(text, key))
    except TypeError as error:
        raise _damaged(key) from error


def _object(text: str | None, key: str) -> dict[str, Any]:
    """Returns the object in a property; empty if there is none."""
    try:
        return dict(json.loads(text or "{}"))
    except (TypeError, ValueError) as error:
        raise _damaged(key) from error


def _damaged(key: str) -> RefusedStart:
    return RefusedStart(
        f"the table property {key} is not as this sink wrote it: another program changed it. Nothing was written. Set "
        "it back to the value in an older metadata file of the table, or take a new checkpoint, sink_id and output."
    )
