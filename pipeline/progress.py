"""Records the pipeline's progress as JSON lines, and its position for Kafka tools.

`progress.jsonl` has one object per line:

    {"kind": "started", "t_us", "generation", "sink_id", "open_batch", "versions"}
    {"kind": "gap", "t_us", "text", "batch"}
    {"kind": "running", "t_us"}
    {"kind": "sink", "t_us", "batch", "rows", "drained", "dropped", "quarantined": {reason: n}, "timings_ms": {...}}
    {"kind": "batch", "t_us", "batch", "began_us", "start_offsets", "end_offsets", "input_rows", "duration_ms", "state",
     "event_time"}
    {"kind": "stopped", "t_us", "why"}

`began_us` is the beginning of the batch's trigger, by Spark's clock. The `batch` line is written when Spark calls its
listeners, some 0.2 to 0.5 s after the batch's end. `open_batch` is the batch that Spark's offset log has and its commit
log lacks: an earlier attempt left it, and this attempt runs it again. `null` means that there is none. `gap` is a loss
that this attempt has accepted (docs/starts.md).

A `batch` line means that Spark's commit log has the batch; `end_offsets` are then the pipeline's committed position.
The same position is committed to a consumer group, for monitoring only: the pipeline never reads it, and deleting or
moving it has no effect.

What can go wrong: the commit to the consumer group fails. The pipeline logs this and continues. It also continues if a
line cannot be written (a full disk), because a batch is done with or without its line. Only a run that is judged by its
lines (`progress_whole`) stops then. A long job keeps at most MOST_BYTES in this file, and the same amount of older
lines in `progress.jsonl.1`.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from oncebench.delivery.batch import Batch
from oncebench.delivery.failures.cause import UNKNOWN
from oncebench.delivery.failures.kafka import named, of_error
from oncebench.jobs.checkpoint import offsets_of
from oncebench.kafka_repair.addresses import RECOVERY

# Some 90,000 batches of 0.7 KB: five hours at five batches a second, and little for a disk that holds a checkpoint.
MOST_BYTES = 64 * 1024 * 1024
# How long a stop waits for the answer to the last position. A broker that refuses it answers in milliseconds.
_ANSWER_S = 1.0
# A poll that takes the answer to a position still waits its whole time, because the answer is no event.
_LOOK_S = 0.02
_log = logging.getLogger(__name__)


class Progress:
    """Appends to progress.jsonl. Each line is one write, so a kill tears at most the last line.

    Args:
        path: of progress.jsonl.
        whole: whether every line of the run must be kept, see `PipelineConfig.progress_whole`.
    """

    def __init__(self, path: Path, whole: bool) -> None:
        self._path, self._whole = path, whole
        self._handle = _opened(path)
        self._writing = threading.Lock()  # the job, its batches and Spark's listener run in a thread each
        self._torn = self._warned = False

    def write(self, kind: str, **fields: Any) -> None:
        """Appends one line.

        Raises:
            OSError: the line could not be written, and every line must be kept.
        """
        line = json.dumps({"kind": kind, "t_us": time.time_ns() // 1000, **fields}).encode() + b"\n"
        with self._writing:
            try:
                self._append(line)
            except OSError as error:
                if self._whole:
                    raise OSError(error.errno, error.strerror, str(self._path)) from error
                if not self._warned:
                    _log.warning(
                        "%s cannot be written (%s): the pipeline continues, and lines will be missing there. Make room "
                        "on its disk. This warning is not repeated.",
                        self._path,
                        error.strerror,
                    )
                self._warned = True

    def write_delivered(self, batch: Batch) -> None:
        """Writes the `sink` line of a batch that the sink holds."""
        rejected: Counter[str] = Counter()
        for result in batch.results:
            rejected.update(result.quarantined)
        self.write(
            "sink",
            batch=batch.id,
            rows=sum(result.rows for result in batch.results),
            drained=batch.drained,
            dropped=batch.dropped,
            quarantined=rejected,
            timings_ms={step: round(spent, 3) for step, spent in batch.timings_ms.items()},
        )

    def write_recovered_batch(self, batch: int, end_offsets: Mapping[str, int]) -> None:
        """Writes the line of a batch that an earlier attempt finished, if a kill prevented it."""
        self.write(
            "batch",
            batch=batch,
            start_offsets={},
            end_offsets=end_offsets,
            input_rows=0,
            duration_ms={},
            state=[],
            event_time={},
            recovered=True,
        )

    def _append(self, line: bytes) -> None:
        if not self._whole and os.fstat(self._handle).st_size >= MOST_BYTES:
            with suppress(FileNotFoundError):  # moved before, when there was no room for a new file
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            full, self._handle = self._handle, _opened(self._path)
            os.close(full)
        line = b"\n" + line if self._torn else line
        self._torn = os.write(self._handle, line) < len(line)  # a nearly full disk takes a part of the line
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Monitoring:
    """Commits the pipeline's position to a consumer group for monitoring.

    Nothing depends on the group. If this user may not use it, a warning names the right, once.
    """

    def __init__(self, client: Mapping[str, Any], group: str, topic: str) -> None:
        self._group, self._topic = group, topic
        self._answered, self._refused = True, False
        settings = {"group.id": group, "enable.auto.commit": False, "on_commit": self._note_answer}
        self._consumer: Consumer | None = Consumer({**client, **RECOVERY, **settings})

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Sends the position without waiting for the answer."""
        if self._consumer is None or self._refused:
            return
        positions = [TopicPartition(self._topic, int(p), offset) for p, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=True)
            self._answered = False
            self._look(0.0)
        except KafkaException as error:
            _log.warning("could not commit the position for monitoring: %s", error)

    def close(self) -> None:
        """Closes the connection."""
        if self._consumer is None:
            return
        until = time.monotonic() + _ANSWER_S
        while not (self._answered or self._refused) and time.monotonic() < until:
            self._look(_LOOK_S)
        if not self._refused:
            self._consumer.close()
        self._consumer = None  # without `close`, which would wait a minute for the refused commit

    def _note_answer(self, error: KafkaError | None, _positions: list[TopicPartition]) -> None:
        self._answered = error is None

    def _look(self, limit_s: float) -> None:
        """Takes the cluster's answers, and stops the commits after a lasting refusal."""
        assert self._consumer is not None, "close() comes last"
        event = self._consumer.poll(limit_s)
        refusal = None if event is None else event.error()
        cause = UNKNOWN if refusal is None else of_error(refusal)
        if not cause.permanent:
            return
        self._refused = True
        remedy = named(cause, self._topic, self._group.rsplit(".", 1)[0]).remedy
        _log.warning(
            "group %s gets no positions, so no tool shows the lag of this job: %s. %s", self._group, refusal, remedy
        )


class Listener:
    """Turns Spark's progress events into `batch` lines and monitoring commits.

    It implements Spark's own interface. PySpark's `StreamingQueryListener` reads an event field by field, with some 200
    calls to the JVM a batch. At 1,000 events/s on two cores they took 45 % of the JVM's processor time.

    Args:
        progress, monitoring: where the lines and the commits go.
        topic: the input topic.
        fail: called with the error if a line cannot be written. Spark only logs what a listener raises.
    """

    def __init__(
        self, progress: Progress, monitoring: Monitoring, topic: str, fail: Callable[[BaseException], None]
    ) -> None:
        self._progress = progress
        self._fail = fail
        self._monitoring = monitoring
        self._topic = topic

    def listen(self, spark: SparkSession) -> None:
        """Adds this listener to the session's queries."""
        context = spark.sparkContext
        assert context._gateway is not None, "the session is started"
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        wrapper = getattr(context._jvm, "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper")
        spark._jsparkSession.streams().addListener(wrapper(self))

    def onQueryStarted(self, event: Any) -> None:
        """Does nothing: the job has written `started` before."""

    def onQueryIdle(self, event: Any) -> None:
        """Does nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Does nothing: the job writes `stopped`."""

    def onQueryProgress(self, event: Any) -> None:
        """Passes the progress of a batch on, as JSON in one call."""
        self.record(event.progress().json())

    class Java:
        """The interface, for py4j."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def record(self, progress: str) -> None:
        """Writes the line of a batch; Spark calls it when its commit log has the batch.

        Args:
            progress: `StreamingQueryProgress.json`.
        """
        seen = json.loads(progress)
        source = seen["sources"][0]
        if "addBatch" not in seen["durationMs"]:
            return  # a trigger without new data
        state = [
            {**operator, "customMetrics": operator.get("customMetrics", {})} for operator in seen["stateOperators"]
        ]
        ends = offsets_of(source["endOffset"], self._topic)
        try:
            self._progress.write(
                "batch",
                batch=seen["batchId"],
                began_us=round(datetime.fromisoformat(seen["timestamp"]).timestamp() * 1e6),
                start_offsets=offsets_of(source["startOffset"], self._topic),
                end_offsets=ends,
                input_rows=seen["numInputRows"],
                duration_ms=seen["durationMs"],
                state=state,
                event_time=seen.get("eventTime", {}),
            )
        except OSError as error:
            self._fail(error)
        self._monitoring.commit(ends)


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
