"""Delta Lake: rows are appended to a table, a batch is one commit of its log, and the commit holds the batch's marker.

At-least-once appends; at-most-once appends what was claimed. Exactly-once is idempotent: each commit holds a
transaction entry of Delta's (txnAppId = sink_id and the id of the checkpoint, txnVersion = batch). A start looks for
the newest entry of its txnAppId. The batch that it names is there: a replay is drained (Delta's own skip runs nothing,
and Spark would miss the state's commits), and its rows are compared with those of the data files which that commit
added. There is no two-phase variant: Delta knows no commit that is prepared by one process and ended by another.

A txnAppId that outlives its checkpoint loses data in silence: the new checkpoint counts from batch 0 again, and Delta
skips every version up to the one that it knows. So the id of the checkpoint is part of it, and a start is refused
where the table has entries of this sink_id from another checkpoint, which would be written twice.

Fencing: an older driver that wakes up and appends its batch under the same txnAppId meets Delta's own check. If the
younger one has committed that batch before, Delta skips the write (`pipeline.batch` sees that nothing ran, and the
driver stops); if it commits while the older one writes, the older one fails with a ConcurrentTransactionException. At
most one commit per batch stands. What can go wrong: on a local disk Delta puts a log entry in place by a look and a
rename; two drivers that do so in the same instant could replace each other's. Where the store has a put-if-absent
(HDFS, and Delta's log stores for clouds) they cannot. Two checkpoints that are both new and start at the same moment
do not see each other either.

A writer that dies leaves data files which no version names. No reader sees them, and Delta's VACUUM removes them. A
start leaves them alone: nothing tells them from the files of a writer that is about to commit, another's or a zombie's,
and a commit whose file is gone breaks the table.

Limits: the table is a folder that this process can read (our look at the log goes by the file system). A commit whose
data files were compacted and vacuumed before its batch was replayed can't be compared: such a start is refused. A
batch that makes no rows leaves one empty Parquet file which no version names: it is Spark's, holds nothing and is not
told among the leftovers. Compacting (OPTIMIZE) gives rows a new place: don't compact while an observer reads.

The baseline is Delta's own streaming sink, which promises exactly-once per query id (its entry: query id, batch). It
has no place for faults, so where faults are asked for it is Delta's documented idempotent write in foreachBatch, with
the same entry and the same skip. Records that were set aside are left out of it, and reach no quarantine topic.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline import digest
from pipeline.errors import PipelineError, ReadError, RefusedStart
from pipeline.journal import checkpoint_id
from pipeline.sinks.contract import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    WHOLE,
    Kind,
    Mark,
    Place,
    Sink,
    Support,
    TaskView,
)
from pipeline.sinks.reading import Rows, Snapshots, place_in_file, rows_of

if TYPE_CHECKING:
    from pipeline.config import PipelineConfig

# A row's columns in Delta's words.
COLUMNS = {
    "session_key": "string", "j": "integer", "events": "integer", "total": "long", "checksum": "long",
    "ended_at": "long",
}  # fmt: skip
# Rows of one look become Python objects: a reader that comes late takes them in pieces.
FILES_A_LOOK = 50


@dataclass(frozen=True)
class Append:
    """Appends a batch as one commit; with `app_id`, the commit holds (app_id, batch)."""

    table: Path
    app_id: str | None = None

    def write_batch(self, rows: DataFrame, batch: int) -> dict[str, float]:
        started = time.perf_counter()
        writer = rows.write.format("delta").mode("append")
        if self.app_id is not None:
            writer = writer.option("txnAppId", self.app_id).option("txnVersion", batch)
        writer.save(str(self.table))
        return {"write": (time.perf_counter() - started) * 1000}


class Nothing:
    """Uses up the rows: there is nothing to warm in a worker, Spark's writer runs in the JVM."""

    def write(self, _task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        for _ in rows:
            pass
        return {}, {}


SUPPORTS = (
    Support(AT_MOST_ONCE, "claim", "claim, then append", default=True),
    Support(AT_LEAST_ONCE, "acknowledged", "append, one commit per batch", default=True),
    Support(EXACTLY_ONCE, "idempotent", "append with txnAppId and txnVersion in the same commit", default=True),
    Support(
        EXACTLY_ONCE, "native",
        "Delta's own streaming sink, as shipped (killed: its idempotent write in foreachBatch), per query id",
    ),
)  # fmt: skip


class DeltaSink(Sink):
    """Rows in a Delta table, a commit per batch.

    Args:
        table: folder of the table; made by the first batch.
        sink_id: names this sink in the table's log; two pipelines must not share one.
        partitions: tasks per batch.
        checkpoint: Spark's checkpoint, with our journal in it.
    """

    def __init__(self, table: Path, sink_id: str, partitions: int, checkpoint: Path) -> None:
        self.partitions = partitions
        self._table = table
        self._sink_id = sink_id
        self._checkpoint = checkpoint
        self._app_id = ""
        self._unnumbered = count()
        self._marks: dict[int, Mark] = {}

    def start(self, support: Support, generation: int, keep: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`: columns compared, entries of other checkpoints refused, the marker read."""
        del generation, keep  # Delta's own check of the entries fences
        with _told(RefusedStart, self._table, "Nothing was written. Mend the table, or take another folder."):
            wrong = difference(self._table)
        if wrong is not None:
            raise RefusedStart(
                f"the Delta table {self._table} was made for other rows: {wrong}. Nothing was written. Take another "
                "folder, or move this table away."
            )
        if not os.access(_existing(self._table), os.W_OK):
            raise RefusedStart(f"{self._table} cannot be written. Nothing was written. Mend its rights or its mount.")
        if support.variant != "idempotent":
            return
        self._app_id = f"{self._sink_id}/{checkpoint_id(self._checkpoint)}"
        log = self._table / "_delta_log"
        with _told(RefusedStart, self._table, "Nothing was written. Mend the table's log, or take another folder."):
            entries = transactions(log)
        self._refuse_other_checkpoints(entries)
        if self._app_id in entries:
            self._marks = {WHOLE: self._mark(log, entries[self._app_id])}

    def warm(self) -> Nothing:
        return Nothing()

    def unacknowledged(self) -> Append:
        return Append(self._table)

    def acknowledged(self) -> Append:
        return Append(self._table)

    def marked(self) -> Append:
        return Append(self._table, self._app_id)

    def marks(self) -> Mapping[int, Mark]:
        return self._marks

    def write_as_shipped(self, rows: DataFrame) -> None:
        told = rows.sparkSession.sparkContext.getLocalProperty
        query, batch = told("sql.streaming.queryId"), told("streaming.sql.batchId")
        # Outside a query (`oncebench batches`) it is given an identity, for it is the entry that takes the time.
        number = next(self._unnumbered) if batch is None else int(batch)
        Append(self._table, query or self._sink_id).write_batch(rows_only(rows), number)

    def stream_as_shipped(self, rows: DataFrame) -> DataStreamWriter:
        return rows_only(rows).writeStream.format("delta").outputMode("append").option("path", str(self._table))

    def _refuse_other_checkpoints(self, entries: Mapping[str, int]) -> None:
        others = {app: batch for app, batch in entries.items() if app.startswith(f"{self._sink_id}/")}
        others.pop(self._app_id, None)
        if others:
            app, batch = max(others.items(), key=lambda entry: entry[1])
            raise RefusedStart(
                f"the Delta table {self._table} holds batches up to {batch} of sink_id {self._sink_id!r} from another "
                f"checkpoint (txnAppId {app}), and this start has {self._checkpoint}: the checkpoint is new or "
                "another's, or two pipelines share the sink_id. Restore the checkpoint that wrote them, or take a new "
                "sink_id (rows would then be written again)."
            )

    def _mark(self, log: Path, batch: int) -> Mark:
        if (self._checkpoint / "commits" / str(batch)).exists():
            return Mark(batch, 0, 0)  # never replayed: nothing will be compared
        try:
            files = [self._table / name for name in files_of(log, self._app_id, batch)]
            return Mark(batch, *counted(files))
        except (OSError, LookupError) as gone:
            raise RefusedStart(
                f"batch {batch} is in the Delta table {self._table}, but what it wrote can't be looked up any more "
                f"({gone!r}): its log entry or data files were cleaned up. Its replay could not be compared. Restore "
                "them, or take a new checkpoint and a new sink_id (rows would then be written again)."
            ) from gone


def difference(table: Path) -> str | None:
    """What tells the columns of a table from those of our rows, for people; None if nothing or no table."""
    if not DeltaTable.is_deltatable(str(table)):
        return None
    found = DeltaTable(str(table))
    types = {column["name"]: column["type"] for column in json.loads(found.schema().to_json())["fields"]}
    for name, kind in COLUMNS.items():
        if types.get(name) != kind:
            return f"column {name!r} is {types.get(name, 'missing')!r} and must be {kind!r}"
    for name in types:
        if name not in COLUMNS:
            return f"column {name!r} is not one of our rows'"
    for name in found.metadata().partition_columns:
        return f"it is partitioned by column {name!r}, and must not be partitioned"
    return None


def transactions(log: Path) -> dict[str, int]:
    """The newest txnVersion of every txnAppId in a table's log: its newest checkpoint, then the commits after it."""
    checkpoints = sorted(log.glob("*.checkpoint*.parquet"))
    newest = _version(checkpoints[-1]) if checkpoints else -1
    found: dict[str, int] = {}
    for path in checkpoints:
        if _version(path) == newest:
            entries = pq.read_table(path, columns=["txn"])["txn"].drop_null().to_pylist()
            found |= {entry["appId"]: entry["version"] for entry in entries}
    for path in commits(log):
        if _version(path) > newest:
            found |= {action["txn"]["appId"]: action["txn"]["version"] for action in _actions(path, "txn")}
    return found


def commits(log: Path) -> list[Path]:
    """The commits of a table's log that were not cleaned up, oldest first."""
    return sorted(path for path in log.glob("*.json") if path.stem.isdigit())


def files_of(log: Path, app_id: str, batch: int) -> list[str]:
    """Names of the data files that the commit with the entry (app_id, batch) added.

    Raises:
        LookupError: the log holds no such commit any more.
    """
    for path in reversed(commits(log)):
        entry = {"appId": app_id, "version": batch}
        if any(entry.items() <= action["txn"].items() for action in _actions(path, "txn")):
            return [unquote(action["add"]["path"]) for action in _actions(path, "add")]
    raise LookupError(f"no commit of batch {batch} in {log}")


def counted(files: Sequence[Path]) -> tuple[int, int]:
    """(rows, digest) of the rows in data files."""
    batches = [batch for file in files for batch in pq.ParquetFile(file).read().to_batches()]
    return sum(batch.num_rows for batch in batches), reduce(digest.add, map(digest.digest, batches), 0)


def _version(path: Path) -> int:
    return int(path.name.split(".", 1)[0])


def _actions(commit: Path, kind: str) -> Iterator[dict[str, Any]]:
    for line in commit.read_bytes().splitlines():
        action = json.loads(line)
        if kind in action:
            yield action


def rows_only(rows: DataFrame) -> DataFrame:
    """The columns of rows, without what was set aside."""
    return rows.where("reason is null").select(*COLUMNS)


@contextmanager
def _told(kind: type[PipelineError], table: Path, advice: str) -> Iterator[None]:
    """What delta-rs or a damaged log says, as an error of ours. (delta-rs: newer protocols, missing versions.)"""
    try:
        yield
    except (DeltaError, ValueError, pa.ArrowException) as error:
        words = str(error).splitlines() or [type(error).__name__]  # what follows its first line is a stack
        raise kind(f"the Delta table {table} cannot be read: {words[0]}. {advice}") from error


class _Following:
    """The data files of a table as they are named by one version after the other, by an implementation not Spark's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._table: DeltaTable | None = None
        self._seen: set[str] = set()
        self._waiting: list[tuple[str, int]] = []
        self._version = -1

    def fresh(self) -> Rows:
        """Rows of files that a version names and that were not given before."""
        try:
            self._look()
            files, self._waiting = self._waiting[:FILES_A_LOOK], self._waiting[FILES_A_LOOK:]
            read = [(name, ms, pq.read_table(self._folder / name, columns=list(COLUMNS))) for name, ms in files]
        except OSError as error:
            raise ReadError(
                f"the Delta table {self._folder}: {error}. Was it compacted or vacuumed meanwhile?"
            ) from error
        places = [place_in_file(name, line) for name, _, rows in read for line in range(rows.num_rows)]
        times = [ms for _, ms, rows in read for _ in range(rows.num_rows)]
        return rows_of(places, times, [row for _, _, rows in read for row in rows.to_pylist()])

    def _look(self) -> None:
        with _told(ReadError, self._folder, "Read it again; if that fails too, its log is damaged."):
            self._look_at_table()

    def _look_at_table(self) -> None:
        if self._table is None:
            if not DeltaTable.is_deltatable(str(self._folder)):
                return
            if (wrong := difference(self._folder)) is not None:
                raise ReadError(f"the Delta table {self._folder} was made for other rows: {wrong}")
            self._table = DeltaTable(str(self._folder))
        else:
            self._table.update_incremental()
        if self._table.version() == self._version:
            return
        adds = pa.table(self._table.get_add_actions()).select(["path", "modification_time"]).to_pylist()
        fresh = [(add["path"], add["modification_time"]) for add in adds if add["path"] not in self._seen]
        self._seen.update(name for name, _ in fresh)
        self._waiting += sorted(fresh, key=lambda file: file[1])
        self._version = self._table.version()

    def leftovers(self) -> list[str]:
        """Data files with rows that no version names: of writers that died before their commit."""
        self._look()
        named = {unquote(add["add"]["path"]) for path in commits(self._folder / "_delta_log")
                 for add in _actions(path, "add")}  # fmt: skip
        found = (path for path in self._folder.glob("*.parquet") if path.name not in named | self._seen)
        return sorted(path.name for path in found if _has_rows(path))


def _has_rows(path: Path) -> bool:
    with suppress(pa.ArrowInvalid):  # torn: its writer died
        return bool(pq.read_metadata(path).num_rows)
    return True


def _existing(path: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return path if path.is_dir() else _existing(path.absolute().parent)


def _provide(place: Place) -> dict[str, Any]:
    return {"output": str(place.folder / "table")}


def _open(config: PipelineConfig) -> DeltaSink:
    return DeltaSink(Path(config.output["output"]), config.sink_id, config.partitions, config.checkpoint)


def _read(target: Mapping[str, Any]) -> Snapshots:
    table = _Following(Path(target["output"]))
    return Snapshots(table.fresh, table.leftovers)


LACKS = {"two-phase": "no process can end a Delta commit that another has prepared"}
KINDS = (
    Kind(
        name="delta",
        supports=SUPPORTS,
        lacks=LACKS,
        ordered=False,
        swept=True,
        whole=True,
        provide=_provide,
        in_folder=True,
        open=_open,
        read=_read,
        jars=("spark-delta",),
        spark={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # Tasks in which Delta replays its log after a commit; 50 by default, for tables of millions of files.
            "spark.databricks.delta.snapshotPartitions": "2",
        },
    ),
)
