"""A sink in a package of its own: one file of JSON lines per batch and partition.

The package is a single module, and the output is a folder.

Under exactly-once the name of the file is the marker: a hard link makes the file visible in one step, or fails because
the name exists. Under at-least-once each write has a name of its own. A start deletes the hidden files of dead tasks; a
task that still writes one then fails. Rows of a partition are held in memory until they are written.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from oncebench.delivery import digest
from oncebench.delivery.contract import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    Mark,
    Sink,
    SinkKind,
    SinkSettings,
    Support,
    TaskView,
)
from oncebench.delivery.durable import fsync_folder
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed
from oncebench.sinks.folder_events import changes_in
from oncebench.sinks.reader import Rows, Snapshots, now_us, place_in_file, rows_of
from oncebench.sinks.suite import Place, SuiteSink, Traits

Written = tuple[dict[str, Any], dict[str, float]]


@dataclass(frozen=True)
class LinesWriter:
    """Writes a partition as one file; `once`: under a name that only one write can take."""

    folder: str
    sink_id: str
    once: bool

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> Written:
        lines = [json.dumps(row, default=str) for batch in rows for row in batch.to_pylist()]
        task.reach("before-prepare")
        count, summed = task.counted()
        head = json.dumps({"rows": count, "digest": digest.to_text(summed)})
        name = f"{self.sink_id}.{task.partition}.{task.batch}" + ("" if self.once else f".{uuid.uuid4().hex}")
        hidden = Path(self.folder, f".{name}.{uuid.uuid4().hex}")
        try:
            with hidden.open("x") as file:
                file.write("\n".join([head, *lines]))
                file.flush()
                os.fsync(file.fileno())
            task.reach("after-prepare")
            self._show(hidden, name, head)
        except OSError as error:
            raise DeliveryFailed(f"{self.folder} did not take batch {task.batch}: {error}. Start again.") from error
        return {}, {}

    def _show(self, hidden: Path, name: str, head: str) -> None:
        visible = hidden.with_name(name)
        try:
            visible.hardlink_to(hidden)
        except FileExistsError:
            if _head(visible) != head:
                raise AnotherDriver(f"{visible} holds other rows. Let one driver run per sink_id.") from None
        hidden.unlink()
        fsync_folder(hidden.parent)


def _head(path: Path) -> str:
    return path.read_text().partition("\n")[0]


@dataclass(frozen=True)
class WarmUp:
    """Does nothing: a folder needs no connection."""

    def write(self, _task: TaskView, _rows: Iterator[pa.RecordBatch]) -> Written:
        return {}, {}


class LinesSink(Sink):
    """Writes rows to files of one folder."""

    def __init__(self, settings: SinkSettings) -> None:
        self.partitions = settings.partitions
        self._folder, self._sink_id = Path(settings.output["output"]), settings.sink_id
        self._marks: dict[int, Mark] = {}

    def start(self, support: Support, _generation: int, _decided: Sequence[Mapping[str, Any]]) -> None:
        for hidden in self._folder.glob(".*"):
            hidden.unlink()
        for path in self._folder.iterdir() if support.guarantee == EXACTLY_ONCE else ():
            partition, batch = map(int, path.name.removeprefix(f"{self._sink_id}.").split("."))
            if batch > self._marks.get(partition, Mark(-1, 0, None)).batch:
                head = json.loads(_head(path))
                self._marks[partition] = Mark(batch, head["rows"], digest.from_text(head["digest"]))

    def marks(self) -> Mapping[int, Mark]:
        return self._marks

    def warm_up_writer(self) -> WarmUp:
        return WarmUp()

    def acknowledged_writer(self) -> LinesWriter:
        return LinesWriter(str(self._folder), self._sink_id, once=False)

    def idempotent_writer(self) -> LinesWriter:
        return LinesWriter(str(self._folder), self._sink_id, once=True)


KINDS = (
    SinkKind(
        name="lines",
        supports=(
            Support(AT_LEAST_ONCE, "acknowledged", "a file per write, forced to the disk", default=True),
            Support(EXACTLY_ONCE, "idempotent", "a file whose name only one write can take", default=True),
        ),
        lacks={"at-most-once": "the example keeps to two guarantees"},
        open=LinesSink,
    ),
)


def _provide(place: Place) -> dict[str, Any]:
    folder = place.folder / "lines"
    folder.mkdir()
    return {"output": str(folder), "key": place.key}


def _read(target: Mapping[str, Any]) -> Snapshots:
    folder, read = Path(target["output"]), set[str]()

    def fresh() -> Rows:
        names = sorted({path.name for path in folder.iterdir() if not path.name.startswith(".")} - read)
        for name in names:
            read.add(name)
            rows = [json.loads(line) for line in (folder / name).read_text().splitlines()[1:]]
            if rows:
                seen_us = now_us()
                places = [place_in_file(name, line) for line in range(len(rows))]
                return rows_of(places, [seen_us // 1000] * len(rows), rows, target["key"], seen_us)
        return Rows()

    def leftovers() -> list[str]:
        return [f"hidden file {path.name}" for path in folder.glob(".*")]

    return Snapshots(fresh, leftovers, changes=changes_in(folder))


SUITE_SINKS = (
    SuiteSink(
        kind=KINDS[0], traits=Traits(ordered=True), provide=_provide, read=_read, writes_local_files=True,
    ),
)  # fmt: skip
