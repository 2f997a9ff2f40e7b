"""The facts about a run's sink that the audit needs, as the run's record holds them.

Promise: the audit of a stored run uses no registry and imports no sink. A run folder of an earlier version holds no
facts about its sink; EARLIER has the facts of the sinks of that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oncebench.record.validation import RecordError


@dataclass(frozen=True)
class SinkTraits:
    """See `oncebench.sinks.suite.Traits`, which a run writes into its `cell.json`."""

    ordered: bool
    self_cleaning: bool = False
    batch_atomic: bool = False
    has_write_timestamps: bool = False
    services: tuple[str, ...] = ()


_FILES = SinkTraits(ordered=True, has_write_timestamps=True)
_DELTA = SinkTraits(ordered=False, self_cleaning=True, batch_atomic=True, has_write_timestamps=True)
_POSTGRES = SinkTraits(ordered=False, services=("postgres",))
EARLIER: Mapping[str, SinkTraits] = {
    "kafka": _FILES,
    "broken-kafka": _FILES,
    "files-jsonl": _FILES,
    "files-parquet": _FILES,
    "broken-files": _FILES,
    "delta": _DELTA,
    "broken-delta": _DELTA,
    "postgres": _POSTGRES,
    "broken-postgres": _POSTGRES,
    "sqlite": SinkTraits(ordered=True),
    "pravega": SinkTraits(ordered=True, self_cleaning=True, services=("pravega",)),
}


def traits_of(recorded: Mapping[str, Any], sink: str) -> SinkTraits:
    """The traits in an object of `cell.json`, which a run into `sink` wrote.

    Raises:
        RecordError: it holds none, and no earlier version had that sink.
    """
    found = recorded.get("sink_traits")
    if found is None:
        if sink not in EARLIER:
            raise RecordError(
                f"the record has no traits of sink {sink!r}. Judge it with the oncebench version that wrote it"
            )
        return EARLIER[sink]
    return SinkTraits(**{**found, "services": tuple(found.get("services", ()))})
