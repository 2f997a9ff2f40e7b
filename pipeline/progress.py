"""What the pipeline did, as JSON lines, and its source offsets for any Kafka tool to see.

`progress.jsonl` has one object a line:

    {"kind": "started", "t_us", "generation", "sink_id", "open_batch", "versions"}
    {"kind": "running", "t_us"}
    {"kind": "sink", "t_us", "batch", "rows", "drained", "dropped", "quarantined": {reason: n}, "timings_ms": {...}}
    {"kind": "batch", "t_us", "batch", "began_us", "start_offsets", "end_offsets", "input_rows", "duration_ms", "state",
     "event_time"}
    {"kind": "stopped", "t_us", "why"}

`began_us` is when the batch's trigger began, by Spark's clock: the line comes when Spark calls its listeners, some 0.2
to 0.5 s after the batch's end. `open_batch` is the batch that an earlier life has left in Spark's offset log and not in
its commit log: this life runs it again. None: there is none.

A `batch` line says that Spark's commit log has the batch: `end_offsets` are then the pipeline's committed position.
The same position is committed to a consumer group for monitoring only; nothing reads it back, and deleting or moving
it changes nothing. What can go wrong: that commit fails; it is logged and the pipeline goes on. So it does where a line
cannot be written (a full disk), for a batch is done with or without it; only a run that will be judged by its lines
(`progress_whole`) stops then. Of a job of days the newest MOST_BYTES are there, and as many before them in
`progress.jsonl.1`.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql.streaming.listener import StreamingQueryListener

from pipeline.checkpoint import offsets_of

# Some 90,000 batches of 0.7 KB: five hours at five a second, and nothing that a disk with a checkpoint would notice.
MOST_BYTES = 64 * 1024 * 1024
_log = logging.getLogger(__name__)


class Progress:
    """Appends to progress.jsonl; each line is one write, so a kill leaves at most one torn line at the end.

    Args:
        path: of progress.jsonl.
        whole: whether every line of the run must be there, see `PipelineConfig.progress_whole`.
    """

    def __init__(self, path: Path, whole: bool) -> None:
        self._path, self._whole = path, whole
        self._handle = _opened(path)
        self._writing = threading.Lock()  # the job, its batches and Spark's listener have a thread each
        self._torn = self._warned = False

    def write(self, kind: str, **fields: Any) -> None:
        """Appends one line.

        Raises:
            OSError: it could not be written, and the record must be whole.
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
                        "%s cannot be written (%s): the pipeline goes on, and lines will be missing there. Make room "
                        "on its disk; this is not said again.",
                        self._path,
                        error.strerror,
                    )
                self._warned = True

    def write_recovered_batch(self, batch: int, end_offsets: Mapping[str, int]) -> None:
        """Writes the line of a batch that an earlier attempt has finished, in case a kill prevented its own."""
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
            with suppress(FileNotFoundError):  # moved already, but then there was no room for a new one
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            full, self._handle = self._handle, _opened(self._path)
            os.close(full)
        line = b"\n" + line if self._torn else line
        self._torn = os.write(self._handle, line) < len(line)  # the last bytes of a disk take a part of it
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Monitoring:
    """Commits the pipeline's position to a consumer group that nobody reads."""

    def __init__(self, client: Mapping[str, Any], group: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Sends the position; the answer is not waited for."""
        positions = [TopicPartition(self._topic, int(p), offset) for p, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=True)
            self._consumer.poll(0)
        except KafkaException as error:
            _log.warning("could not commit the position for monitoring: %s", error)

    def close(self) -> None:
        """Leaves the cluster."""
        self._consumer.close()


class Listener(StreamingQueryListener):
    """Turns Spark's progress events into `batch` lines and monitoring commits.

    Args:
        progress, monitoring: where they go.
        topic: the input topic.
        fail: called with the error when a line cannot be written. Spark only logs what a listener raises.
    """

    def __init__(
        self, progress: Progress, monitoring: Monitoring, topic: str, fail: Callable[[BaseException], None]
    ) -> None:
        self._progress = progress
        self._fail = fail
        self._monitoring = monitoring
        self._topic = topic

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to note: `started` is written before."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to note."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to note: `stopped` is written by the job."""

    def onQueryProgress(self, event: Any) -> None:
        """Called after the batch stands in the commit log."""
        seen = json.loads(event.progress.json)
        source = seen["sources"][0]
        if "addBatch" not in seen["durationMs"]:
            return  # a trigger that found nothing to do
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
