"""Reads input, output and quarantine to their ends and stores them in the run folder.

Promise: a file has the end mark only if the read was complete, so a reader that gave up cannot be mistaken for an empty
topic. Failure modes: see `ReadReport.note`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from oncebench.delivery.copies import headers as names
from oncebench.delivery.copies.headers import split
from oncebench.delivery.errors import ReadError
from oncebench.record import FINAL, LOG, QUARANTINE
from oncebench.record.streams import StreamWriter
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.reader import End, LogReader, OpenTransaction, Reader, ReadReport, Rows
from oncebench.sinks.suite import SuiteSink

IDLE_S = 30.0  # a broker on loopback that is silent for this long is down


@dataclass(frozen=True)
class LogReport:
    """The outcome of the read of a log.

    Attributes:
        complete: whether the whole log was read; `note` has the reason if not.
        open: the transactions that hold back the last stable offset.
    """

    complete: bool
    open: Sequence[OpenTransaction] = ()
    note: str = ""


@dataclass(frozen=True)
class Output:
    """The outcome of the read of an output.

    Attributes:
        read: the read of the rows.
        leftovers: work in the sink that no commit will make visible.
        log: the read of the sink's log, if it has one.
        at_once: whether a batch becomes visible in one step.
        stamped: whether rows carry the time when they were written.
    """

    read: ReadReport
    leftovers: Sequence[str] = ()
    log: LogReport | None = None
    at_once: bool = False
    stamped: bool = False


def final_reads(
    sink: SuiteSink,
    target: Mapping[str, Any],
    kafka: Mapping[str, Any],
    source: str,
    quarantine: str,
    folder: Path,
    settle_s: float,
) -> None:
    """Stores output, input and quarantine, and the ends of these reads.

    Args:
        kafka: librdkafka's settings of the cluster.
        source, quarantine: the topics.
        settle_s: how long each read waits for open transactions.
    """
    output = save_output(sink, target, folder, settle_s=settle_s)
    with closing(KafkaReader.of(kafka, source)) as reader:
        read = save_topic(reader, folder / "input.arrow", settle_s=settle_s)
    with closing(KafkaReader.of(kafka, quarantine)) as reader:
        save_quarantine(reader, folder / "quarantine.arrow", settle_s=settle_s)
    (folder / "ends.json").write_text(json.dumps(ends_json(output, read), indent=1))


def save_topic(reader: Reader, path: Path, *, settle_s: float, idle_s: float = IDLE_S) -> ReadReport:
    """Reads a topic or an output from beginning to end, and writes every record to `path`.

    The path is input.arrow or final.arrow. The audit computes the expected rows from the first and compares them with
    the second. The read waits up to `settle_s` for open transactions.
    """
    return _save(reader, path, FINAL, _record, settle_s, idle_s)


def save_output(sink: SuiteSink, target: Mapping[str, Any], folder: Path, *, settle_s: float) -> Output:
    """Writes final.arrow into the run folder, and log.arrow if the sink's log names the writers."""
    with closing(sink.read(target)) as reader:
        read = save_topic(reader, folder / "final.arrow", settle_s=settle_s)
        leftovers = tuple(reader.leftovers())
    traits = sink.traits
    if sink.log is None:
        return Output(read, leftovers, None, traits.batch_atomic, traits.has_write_timestamps)
    with closing(sink.log(target)) as log:
        return Output(
            read,
            leftovers,
            save_log(log, folder / "log.arrow", read.ends),
            traits.batch_atomic,
            traits.has_write_timestamps,
        )


def save_quarantine(reader: Reader, path: Path, *, settle_s: float, idle_s: float = IDLE_S) -> ReadReport:
    """Writes quarantine.arrow: every record in [0, end), with the values of our headers or null."""
    return _save(reader, path, QUARANTINE, _quarantined, settle_s, idle_s)


def save_log(log: LogReader, path: Path, ends: Mapping[int, End], *, idle_s: float = IDLE_S) -> LogReport:
    """Writes log.arrow: the sections of the output's log up to `ends`."""
    stuck = [partition for partition, end in ends.items() if end.lso < end.hw]
    try:
        with StreamWriter(path, LOG) as writer:
            log.read(ends, lambda found: writer.append(vars(found)), idle_s=idle_s)
        return LogReport(True, tuple(log.open_transactions(stuck, idle_s=idle_s)) if stuck else ())
    except ReadError as error:
        return LogReport(False, note=str(error))


def ends_json(output: Output, source: ReadReport) -> dict[str, Any]:
    """Returns the content of ends.json: the outcomes of the reads of output and input."""
    read, log = output.read, output.log
    return {
        "output": read.ends_json(),
        "output_is_log": read.log,
        "batches_at_once": output.at_once,
        "stamped": output.stamped,
        "leftovers": list(output.leftovers),
        "input": source.ends_json(),
        "waited_s": read.waited_s + source.waited_s,
        "final_complete": read.complete,
        **({} if log is None else {"log_complete": log.complete, "open_transactions": list(map(asdict, log.open))}),
        "notes": [report.note for report in (read, source, log) if report is not None and report.note],
    }


def _save(reader: Reader, path: Path, schema: pa.Schema, columns: Any, settle_s: float, idle_s: float) -> ReadReport:
    writer = StreamWriter(path, schema)
    complete = False
    try:
        report = reader.read_to_end(lambda rows: writer.append(columns(rows)), settle_s=settle_s, idle_s=idle_s)
        complete = report.complete
    finally:
        writer.close(complete=complete)
    return report


def _record(rows: Rows) -> Mapping[str, list[Any]]:
    return {
        "partition": rows.partition,
        "offset": rows.offset,
        "timestamp_ms": rows.append_ms,
        "key": rows.key,
        "value": rows.value,
    }


def _quarantined(rows: Rows) -> Mapping[str, list[Any]]:
    ours = [split(each)[1] for each in rows.headers]
    return {
        **_record(rows),
        "reason": [_text(each.get(names.REASON)) for each in ours],
        "source_partition": [_number(each.get(names.SOURCE_PARTITION), 31) for each in ours],
        "source_offset": [_number(each.get(names.SOURCE_OFFSET), 63) for each in ours],
        "key_bytes": [_number(each.get(names.KEY_BYTES), 63) for each in ours],
        "value_bytes": [_number(each.get(names.VALUE_BYTES), 63) for each in ours],
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None, bits: int) -> int | None:
    text = _text(value)
    if text is None or not (text.isascii() and text.isdigit()):
        return None
    number = int(text[:20])  # longer than any offset; a very long text must not cost time
    return number if number < 2**bits else None
