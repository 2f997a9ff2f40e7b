"""The ledgers of a run: one per generator, read as one.

Promise: every session belongs to one ledger, and all ledgers are of one load. Anything else raises `RecordError`. One
ledger stays in its files; several are copied into memory, 41 bytes per event.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.record import schema
from oncebench.record.objects import read_object
from oncebench.record.validation import RecordError

MAX_SEQS = 100  # a session has seq 0..99

_LEDGER_TYPES: dict[str, type[np.generic]] = {
    "session": np.uint32,
    "seq": np.uint8,
    "scheduled_us": np.int64,
    "sent_us": np.int64,
    "acked_us": np.int64,
    "partition": np.int32,
    "offset": np.int64,
}


@dataclass(frozen=True)
class Plan:
    """The plan of the load (`ledger/plan.json`), read without the generator's code.

    `started_us` is the start of the load, in epoch µs. `events` are those of all generators.
    """

    seed: int
    sessions: int
    events: int
    topic: str
    started_us: int
    rate: float | str = "max"
    shape: str = "constant"


@dataclass(frozen=True)
class Ledger:
    """The generators' ledger: one entry per planned event. Reading it takes none of their code.

    The entries of each generator are in schedule order, and all arrays have the length `Plan.events`.

    `sent_us` is 0 if the event was never attempted. `acked_us` is 0 if the outcome is unknown, negative if it failed.
    """

    session: npt.NDArray[np.uint32]
    seq: npt.NDArray[np.uint8]
    scheduled_us: npt.NDArray[np.int64]
    sent_us: npt.NDArray[np.int64]
    acked_us: npt.NDArray[np.int64]
    partition: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]

    def release(self) -> None:
        """Gives back the memory of the columns' files that were read; the values stay readable."""
        for column in vars(self).values():
            if isinstance(mapping := getattr(column, "_mmap", None), mmap.mmap):
                mapping.madvise(mmap.MADV_DONTNEED)

    @property
    def unanswered(self) -> int:
        """Number of events that were attempted, and that Kafka neither acknowledged nor refused."""
        return int(np.count_nonzero((self.sent_us > 0) & (self.acked_us == 0)))

    @property
    def failed(self) -> int:
        """Number of events for which Kafka's client reported an error."""
        return int(np.count_nonzero(self.acked_us < 0))

    @property
    def sent_share(self) -> float:
        """Share of planned events that were attempted and did not fail; 1.0 without any."""
        return float(np.mean((self.sent_us > 0) & (self.acked_us >= 0))) if len(self.seq) else 1.0


def read_ledgers(folders: Sequence[Path]) -> tuple[Plan, Ledger]:
    """Reads the plan and the ledger of each generator, as those of one load.

    Raises:
        RecordError: a ledger is missing or damaged, belongs to another load, or has a session of another ledger.
    """
    plans = [_read_plan(folder / "plan.json") for folder in folders]
    ledgers = [_read_ledger(folder, plan) for folder, plan in zip(folders, plans, strict=True)]
    if len(plans) == 1:
        return plans[0], ledgers[0]
    whole = replace(plans[0], events=sum(plan.events for plan in plans))
    owner = np.full(whole.sessions, -1, np.int16)
    for number, (folder, plan, ledger) in enumerate(zip(folders, plans, ledgers, strict=True)):
        if replace(plan, events=whole.events) != whole:
            raise RecordError(
                f"{folder} and {folders[0]} have plans of different loads. Take the folder from a sound copy, or run "
                "the cell again"
            )
        sessions = np.unique(ledger.session)
        if (twice := sessions[owner[sessions] >= 0]).size:
            first = folders[owner[twice[0]]]
            raise RecordError(
                f"{folder} and {first} both hold session {twice[0]}. Each session belongs to one generator: take the "
                "folder from a sound copy, or run the cell again"
            )
        owner[sessions] = number
    columns = {name: np.concatenate([getattr(each, name) for each in ledgers]) for name in _LEDGER_TYPES}
    for ledger in ledgers:
        ledger.release()
    return whole, Ledger(**columns)


def _read_plan(path: Path) -> Plan:
    item = read_object(path, schema.Plan)
    known = {each.name for each in fields(Plan)}
    return Plan(**{"topic": "", **{name: item[name] for name in known & item.keys()}})


def _read_ledger(folder: Path, plan: Plan) -> Ledger:
    events = plan.events
    columns: dict[str, npt.NDArray[Any]] = {}
    for name, kind in _LEDGER_TYPES.items():
        path = folder / f"{name}.npy"
        try:
            column = np.load(path, mmap_mode="r" if events else None, allow_pickle=False)
        except FileNotFoundError:
            raise RecordError(f"{path} is missing. Losses are counted against the whole ledger: run again") from None
        except (ValueError, OSError, EOFError) as error:
            raise RecordError(f"{path} is damaged ({error}); take the folder from a sound copy") from error
        if column.dtype != kind or column.shape != (events,):
            raise RecordError(
                f"{path} holds {column.dtype} {column.shape}, expected {np.dtype(kind)} ({events},) by plan.json; "
                "the ledger belongs to another run or another version"
            )
        columns[name] = column
    if events and (int(columns["session"].max()) >= plan.sessions or int(columns["seq"].max()) >= MAX_SEQS):
        raise RecordError(
            f"{folder} holds a session or seq beyond plan.json ({plan.sessions} sessions). The ledger belongs to "
            "another run, or is damaged: run the load again"
        )
    ledger = Ledger(**columns)
    ledger.release()
    return ledger
