"""The Delta Lake sink: appends each batch to a table in one commit that contains its marker.

At-least-once appends. At-most-once claims the batch, then appends with a transaction entry: a job with a copy of the
checkpoint then does not append the batch again. Exactly-once is idempotent: each commit contains
Delta's transaction entry (txnAppId = sink_id and the id of the checkpoint, txnVersion = batch). A start reads the
newest entry of its txnAppId. A replay of that batch is drained, because Delta's own skip would run no task and Spark
would not commit the batch's state. The replayed rows are compared with the rows of the data files that the commit
added. There is no two-phase variant: in Delta, no process can end a commit that another process prepared.

A txnAppId that is used with a new checkpoint loses data silently: the new checkpoint counts from batch 0 again, and
Delta skips every version up to the newest one it has. Therefore the id of the checkpoint is part of the txnAppId. A
start is refused if the table has entries of this sink_id from another checkpoint, because rows would be written twice.

Fencing: an older driver that resumes late and appends its batch under the same txnAppId meets Delta's own check. If the
newer driver has committed that batch, Delta skips the write; `oncebench.delivery.batch` finds that none of the batch's
tasks ran, and the driver stops. If the newer driver commits while the older one writes, the older one fails with a
ConcurrentTransactionException. At most one commit per batch remains.

What can go wrong: on a local disk, Delta checks that a log entry is free and then renames its file. Two drivers that do
this at the same instant could replace each other's entry. Stores with put-if-absent (HDFS, and Delta's log stores for
clouds) exclude this. Two new checkpoints that start at the same moment do not see each other either.

A writer that dies leaves data files that no version names. No reader sees them, and Delta's VACUUM removes them. A
start leaves them, because they look like the files of a writer that is about to commit (another pipeline's or a
zombie's). A commit whose file is gone breaks the table.

Limits: the table is a folder that this process can read, because the sink reads the log through the file system. If a
commit's data files were compacted and vacuumed before its batch was replayed, the rows cannot be compared: the start is
refused until the operator accepts that. A batch without rows leaves an empty Parquet file of Spark's that no version
names; it is not listed as a leftover. Compaction (OPTIMIZE) changes the place of rows: do not compact while an observer
reads.

The baseline is Delta's own streaming sink, which promises exactly-once per query id (its entry: query id, batch). It
has no failpoints. A run with faults therefore uses Delta's documented idempotent write in foreachBatch, with the same
entry and the same skip. The baseline leaves rejected records out and does not write them to the quarantine topic.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from oncebench.delivery.contract import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    WHOLE_BATCH,
    Mark,
    Sink,
    SinkKind,
    SinkSettings,
    Support,
    TaskView,
)
from oncebench.delivery.durable import is_uri
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.failures.cause import UNKNOWN, failure
from oncebench.delivery.failures.delta import GONE, of_text
from oncebench.delivery.failures.first_cause import first_cause
from oncebench.delivery.journal import checkpoint_id
from oncebench.delivery.quarantine import without_rejected
from oncebench.delivery.stores.choose import Place
from oncebench.delivery.stores.entries import exists
from oncebench.sinks.delta.log import (
    RETENTION,
    column_difference,
    columns_of,
    newest_kept,
    readable,
    settings_of,
    table_id,
    transactions,
    unsuitable,
)
from oncebench.sinks.delta.replay import Replayable, for_spark
from oncebench.sinks.types import EMPTY, INTERVALS, PLACES, refuse_types, within

# The characters that Delta refuses in the columns of a new table (DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES).
_NOT_IN_NAMES = " ,;{}()\n\t="
# delta-spark 4.4.0 refuses these in every batch.
_NO_TYPES = (*INTERVALS, *PLACES, "time", EMPTY)
_log = logging.getLogger(__name__)


@dataclass
class Seen:
    """Whether a start or a batch of this driver has seen the table. Then it must be there still."""

    table: bool = False


@dataclass(frozen=True)
class Append:
    """Appends a batch as one commit; with `app_id`, the commit contains (app_id, batch).

    The first append of a driver may make the table. A later one is refused if the table is gone: Delta would make a
    new one without a word.
    """

    table: Path
    app_id: str | None = None
    seen: Seen = field(default_factory=Seen)

    def write_batch(self, rows: DataFrame, batch: int) -> dict[str, float]:
        started = time.perf_counter()
        if self.seen.table and not _exists(self.table):
            raise failure(GONE, f"batch {batch} could not be appended: the Delta table {self.table} is gone")
        writer = rows.write.format("delta").mode("append")
        if self.app_id is not None:
            writer = writer.option("txnAppId", self.app_id).option("txnVersion", batch)
        try:
            writer.save(for_spark(self.table))
        except (PySparkException, Py4JError) as error:
            text = first_cause(error)
            cause = of_text(text)
            if cause is UNKNOWN:  # perhaps an error of the query, which Spark runs in this call
                raise
            raise failure(
                cause, f"batch {batch} could not be appended to the Delta table {self.table}: {text}"
            ) from error
        self.seen.table = True
        return {"write": (time.perf_counter() - started) * 1000}


class Nothing:
    """Reads and drops the rows: Spark's writer runs in the JVM, so a worker needs no warm-up."""

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
    """Writes rows to a Delta table, one commit per batch.

    Args:
        table: folder of the table; the first batch makes it.
        sink_id: names this sink in the table's log; two pipelines must not share it.
        partitions: tasks per batch.
        checkpoint: Spark's checkpoint, with our journal in it.
    """

    def __init__(self, table: Path, sink_id: str, partitions: int, checkpoint: Place) -> None:
        self.partitions = partitions
        self._table = table if is_uri(str(table)) else table.absolute()
        self._sink_id = sink_id
        self._checkpoint = checkpoint
        self._app_id = ""
        self._unnumbered = count()
        self._columns: dict[str, str] = {}
        self._replay: Replayable | None = None
        self._newest = -1
        self._seen = Seen()

    def check_schema(self, schema: StructType) -> None:
        """See `Sink.check_schema`: refuses the types and names that Delta refuses.

        `start` checks an existing table.
        """
        refuse_types(schema, _NO_TYPES, "a Delta table")
        self._columns = columns_of(schema)
        if _exists(self._table):  # it may have such names by Delta's column mapping
            return
        for name in (name for kind in within(schema) if isinstance(kind, StructType) for name in kind.names):
            if any(mark in name for mark in _NOT_IN_NAMES):
                raise RefusedStart(
                    f"column or field {name!r} cannot be stored in the Delta table {self._table}: Delta's names have "
                    f"none of the characters {_NOT_IN_NAMES!r}. Give it another name in the query."
                )

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`: compares columns, refuses other checkpoints' entries, reads the marker."""
        del generation, decided  # Delta's own check of the entries fences older drivers
        if is_uri(str(self._table)):
            raise RefusedStart(
                f"{self._table} is a URI for Spark and a relative folder for the reader of the table's log, which "
                "would find no batches there. Give the path of a folder in a mounted file system."
            )
        with _readable(self._table):
            wrong = column_difference(self._table, self._columns)
        if wrong is not None:
            raise RefusedStart(
                f"the Delta table {self._table} does not fit the rows: {wrong}. Nothing was written. Change the table "
                "or the query, or take a new folder; a job that has run needs a new checkpoint and sink_id with it."
            )
        if not os.access(_existing(self._table), os.W_OK):
            raise RefusedStart(
                f"the Delta table {self._table}, or the folder for it, cannot be written. Nothing was written. Give "
                "this user the right to write there, and mount the disk for writing; then start again."
            )
        self._seen.table = _exists(self._table)
        if support.variant == "claim":
            self._take_claims()
        if support.variant != "idempotent":
            return
        self._app_id = f"{self._sink_id}/{checkpoint_id(self._checkpoint)}"
        log = self._table / "_delta_log"
        with _readable(self._table):
            entries, wrong = transactions(log), unsuitable(self._table)
            kept = settings_of(self._table).get(RETENTION)
        if wrong is not None:
            raise RefusedStart(
                f"the Delta table {self._table} cannot be written exactly once: {wrong}. Nothing was written. Take a "
                "table without that, or at-least-once; a job that has run needs a new checkpoint and sink_id for each."
            )
        self._refuse_other_checkpoints(entries)
        if kept is not None:
            _log.warning(
                "the Delta table %s has %s = %s, and forgets the newest batch after that time. A start after a longer "
                "stop then cannot find out whether its open batch is in the table. Unset it, or make it longer.",
                self._table, RETENTION, kept,
            )  # fmt: skip
        if self._app_id in entries:
            batch = entries[self._app_id]
            finished = exists(self._checkpoint, f"commits/{batch}")
            with _readable(self._table):
                self._newest = newest_kept(log, self._app_id, batch)
                self._replay = self._replayable(batch, finished)

    def identity(self) -> Mapping[str, str]:
        with _readable(self._table):
            return table_id(self._table)

    def warm_up_writer(self) -> Nothing:
        return Nothing()

    def _take_claims(self) -> None:
        """Reads the newest claimed batch.

        A driver of a copied checkpoint has the same app_id, so Delta skips that driver's batches.
        """
        self._app_id = f"{self._sink_id}/claim/{checkpoint_id(self._checkpoint)}"
        with _readable(self._table):
            entries = transactions(self._table / "_delta_log")
        self._refuse_other_checkpoints(entries)
        self._newest = entries.get(self._app_id, -1)

    def unacknowledged_writer(self) -> Append:
        return Append(self._table, self._app_id, self._seen)

    def acknowledged_writer(self) -> Append:
        return Append(self._table, None, self._seen)

    def idempotent_writer(self) -> Append:
        return Append(self._table, self._app_id, self._seen)

    def marks(self) -> Mapping[int, Mark]:
        """See `Sink.marks`. With an open batch, the first call reads that batch's data files."""
        return {} if self._replay is None else {WHOLE_BATCH: self._replay.mark(list(self._columns))}

    def incomparable(self) -> str | None:
        """See `Sink.incomparable`.

        The rows of the open batch were compacted and vacuumed, or its log entry is gone.
        """
        if self._replay is None or not self._replay.gone:
            return None
        return (
            f"batch {self._replay.batch} is open and in the Delta table {self._table}. Its replay cannot be compared, "
            f"because its log entry or data files were cleaned up ({self._replay.gone}). Restore them if you have a "
            "copy."
        )

    def newest_batch(self) -> int:
        """See `Sink.newest_batch`; reads no data file. A RESTORE of the table takes batches back."""
        return self._newest

    def write_native(self, rows: DataFrame) -> None:
        local = rows.sparkSession.sparkContext.getLocalProperty
        query, batch = local("sql.streaming.queryId"), local("streaming.sql.batchId")
        # Outside a query (`oncebench batches`) the write also gets an entry, because the entry takes the time.
        number = next(self._unnumbered) if batch is None else int(batch)
        Append(self._table, query or self._sink_id, self._seen).write_batch(without_rejected(rows), number)

    def stream_native(self, rows: DataFrame) -> DataStreamWriter:
        return (
            without_rejected(rows)
            .writeStream.format("delta")
            .outputMode("append")
            .option("path", for_spark(self._table))
        )

    def _refuse_other_checkpoints(self, entries: Mapping[str, int]) -> None:
        others = {app: batch for app, batch in entries.items() if app.startswith(f"{self._sink_id}/")}
        others.pop(self._app_id, None)
        if others:
            app, batch = max(others.items(), key=lambda entry: entry[1])
            raise RefusedStart(
                f"the Delta table {self._table} holds batches up to {batch} of sink_id {self._sink_id!r} from another "
                f"checkpoint (txnAppId {app}), and this start has {self._checkpoint}. The checkpoint is new or "
                "another's, or two pipelines share the sink_id. Restore the checkpoint that wrote them, or take a new "
                "sink_id and table."
            )

    def _replayable(self, batch: int, finished: bool) -> Replayable:
        if finished:
            return Replayable(batch)  # never replayed: nothing will be compared
        if self._newest < batch:  # Delta would skip its replay too
            raise RefusedStart(
                f"batch {batch} is open, and a RESTORE of the Delta table {self._table} has taken its rows back. Delta "
                "keeps the entry of the batch, and takes no batch of this number again. Restore the table to its "
                "version before that RESTORE (DESCRIBE HISTORY shows it), or take a new checkpoint, sink_id and output."
            )
        found = Replayable.of(self._table, self._app_id, batch)
        lacking = found.lacks(list(self._columns))
        if lacking is not None:
            raise RefusedStart(
                f"batch {batch} is open, and its rows in the Delta table {self._table} have no column {lacking!r}. "
                "Nothing was written. Start the job's earlier version, which finishes the batch and takes a table with "
                "further columns; then start this version."
            )
        return found


def _readable(table: Path) -> AbstractContextManager[None]:
    return readable(
        RefusedStart, table,
        "Nothing was written. Mend the cause (restore a damaged table's newest state), or take a new folder, with a "
        "new checkpoint and sink_id if the job has run.",
    )  # fmt: skip


def _exists(table: Path) -> bool:
    """Whether there is a table in this folder."""
    return (table / "_delta_log").is_dir()


def _existing(path: Path) -> Path:
    """Returns the folder, or its nearest existing parent."""
    return path if path.is_dir() else _existing(path.absolute().parent)


def _open(settings: SinkSettings) -> DeltaSink:
    return DeltaSink(Path(settings.output["output"]), settings.sink_id, settings.partitions, settings.checkpoint)


LACKS = {"two-phase": "no process can end a Delta commit that another has prepared"}
KINDS = (
    SinkKind(
        name="delta",
        supports=SUPPORTS,
        lacks=LACKS,
        batch_atomic=True,
        open=_open,
        jars=("spark-delta",),
        spark={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # Tasks in which Delta replays its log after a commit; the default 50 is for tables of millions of files.
            "spark.databricks.delta.snapshotPartitions": "2",
        },
    ),
)
