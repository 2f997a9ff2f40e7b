"""The ledger: per planned event, what the generator attempted and what Kafka acknowledged.

The ledger is a folder with `plan.json` and one `.npy` file per column. Row k of each column is event k of the schedule.

- The columns are memory-mapped files. So a written value survives, even if a kill of the generator comes in the next
  instruction. A power cut may lose values; such a run is not audited.
- `sent_us` is written before the client gets the event. So an event that may be in the topic never counts as
  "not attempted".
- A failed event may still be in the topic, for example if its acknowledgement was lost until its time ran out. "Failed"
  means that Kafka did not confirm the event, not that the event is missing.

| column | dtype | meaning |
|---|---|---|
| session | uint32 | number of the session |
| seq | uint8 | 0..99 |
| scheduled_us | int64 | when the event was due, epoch µs |
| sent_us | int64 | when the client got the event, epoch µs; 0 = never attempted |
| acked_us | int64 | when the acknowledgement was seen, epoch µs; 0 = none; < 0 = failed: -abs(error code) |
| partition | int32 | partition in the topic; -1 = unknown |
| offset | int64 | offset in the partition; -1 = unknown |
"""

import errno
import json
import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from loadgen.errors import LedgerError
from loadgen.session import EVENTS_PER_SESSION

SCHEMA = 1
"""Version of the layout above; a reader refuses any other."""

PLAN_FILE = "plan.json"

_COLUMNS: dict[str, tuple[type[np.generic], int]] = {  # dtype and initial value
    "session": (np.uint32, 0),
    "seq": (np.uint8, 0),
    "scheduled_us": (np.int64, 0),
    "sent_us": (np.int64, 0),
    "acked_us": (np.int64, 0),
    "partition": (np.int32, -1),
    "offset": (np.int64, -1),
}


@dataclass(frozen=True)
class Plan:
    """The plan of a load, enough to make the same load again.

    `started_us` is schedule time 0 in epoch µs. `sessions` counts the whole load, and `events` this ledger. The two
    differ if several generators make the load, each with a ledger (`loadgen.share`).
    """

    seed: int
    rate: float | str
    shape: str
    sessions: int
    events: int
    topic: str
    started_us: int
    events_per_session: int = EVENTS_PER_SESSION
    record_bytes: int = 0
    schema: int = SCHEMA
    generator: int = 1
    generators: int = 1


@dataclass(frozen=True)
class Ledger:
    """The columns, as arrays over their files: writable after `create`, read-only after `open`."""

    directory: Path
    session: npt.NDArray[np.uint32] = field(repr=False)
    seq: npt.NDArray[np.uint8] = field(repr=False)
    scheduled_us: npt.NDArray[np.int64] = field(repr=False)
    sent_us: npt.NDArray[np.int64] = field(repr=False)
    acked_us: npt.NDArray[np.int64] = field(repr=False)
    partition: npt.NDArray[np.int32] = field(repr=False)
    offset: npt.NDArray[np.int64] = field(repr=False)

    @classmethod
    def create(cls, directory: Path, events: int) -> Self:
        """Creates an empty ledger without a plan (see `write_plan`); readers reject it until then.

        Disk space is reserved at once: writing to a memory-mapped file on a full disk kills the process (SIGBUS).

        Raises LedgerError if the folder already holds a ledger or the disk has too little space.
        """
        if events < 1:
            raise LedgerError(f"cannot make a ledger of {events} events; plan at least one session")
        if (directory / PLAN_FILE).exists() or any((directory / f"{name}.npy").exists() for name in _COLUMNS):
            raise LedgerError(f"{directory} already holds a ledger; choose another ledger_dir or delete it")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            return cls(directory, **{name: _make(directory, name, events) for name in _COLUMNS})
        except OSError as error:
            advice = "; free some disk space" if error.errno == errno.ENOSPC else ""
            raise LedgerError(
                f"cannot make a ledger of {events} events in {directory}: {error.strerror}{advice}"
            ) from error

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """Opens a ledger read-only, also while its generator is still writing.

        Raises LedgerError if the folder has no ledger, no plan, or columns that do not fit the plan.
        """
        directory = Path(directory)
        events = read_plan(directory).events
        return cls(directory, **{name: _open(directory, name, events) for name in _COLUMNS})

    @cached_property
    def plan(self) -> Plan:
        """The plan in the ledger's folder. Raises LedgerError if it was never written."""
        return read_plan(self.directory)

    def __len__(self) -> int:
        return len(self.session)

    def write_plan(self, plan: Plan) -> None:
        """Puts the plan in place in one step. From then on the ledger can be opened."""
        fresh = self.directory / f"{PLAN_FILE}.new"
        left_out = {"generator", "generators"} if plan.generators == 1 else set()
        items = {name: value for name, value in asdict(plan).items() if name not in left_out}
        fresh.write_text(json.dumps(items, indent=1) + "\n")
        fresh.rename(self.directory / PLAN_FILE)


def read_plan(directory: Path) -> Plan:
    """Reads the plan of the ledger in `directory`. Raises LedgerError if that is not possible."""
    path = directory / PLAN_FILE
    try:
        data: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise LedgerError(
            f"{directory} has no {PLAN_FILE}: no load began there, or it ended before its plan was written"
        ) from None
    except ValueError as error:
        raise LedgerError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise LedgerError(f"{path} is not a plan of schema {SCHEMA}. Read it with the version that wrote it")
    try:
        return Plan(**data)
    except TypeError as error:
        raise LedgerError(f"{path} is not a complete plan: {error}") from error


def _make(directory: Path, name: str, events: int) -> npt.NDArray[Any]:
    path, (dtype, nothing) = directory / f"{name}.npy", _COLUMNS[name]
    column = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(events,))
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    column[:] = nothing  # touches every page now, so the send loop has no page faults
    return column.view(np.ndarray)  # a plain array over the same file: np.memmap slices slowly


def _open(directory: Path, name: str, events: int) -> npt.NDArray[Any]:
    path, (dtype, _) = directory / f"{name}.npy", _COLUMNS[name]
    try:
        column = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError) as error:
        raise LedgerError(f"cannot read column {path}: {error}") from error
    if column.dtype != dtype or column.shape != (events,):
        raise LedgerError(
            f"column {path} has {column.shape} values of {column.dtype}, but the plan needs {events} of"
            f" {np.dtype(dtype)}. The ledger is damaged"
        )
    return column.view(np.ndarray)  # a plain array over the same file: np.memmap slices slowly
