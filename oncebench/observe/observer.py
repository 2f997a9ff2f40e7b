"""The observer: follows a sink while the run goes on and notes when each row first became visible.

`python -m oncebench.observe.observer CONFIG.json`, a process of its own, so that neither the pipeline nor the
generator can make it late. CONFIG: `sink`, `target` (as the sink's kind provided it), `observed_path` (Arrow
stream), `status_path` (JSON lines). SIGTERM or SIGINT: takes what is there,
writes it, exits 0.

Promise: `seen_us` is the clock when the reader had the row's data, before they became what is kept here (see
`oncebench.sinks.reader`). Kafka hands rows over as they come: one wake-up takes all that are there, so a row is at
most `PAUSE_S` later than the client had it. Of files and Delta's log the kernel tells; any other sink is looked at,
every 5 ms where a look is cheap. A row is later by half of that on average and by what it takes to find and read it:
docs/reading_the_tables.md says how much, sink by sink. What comes while rows of before are being kept is seen after
that. A server that restarts is waited for.

What can go wrong: exit code 1 with a message if the topic is not there within 30 s, or if records are gone. A
kill -9 loses at most what came since the last write, half a second; the stream is then marked incomplete.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import orjson

from oncebench.audit.python.latency import Distribution
from oncebench.delivery.errors import ReadError
from oncebench.errors import ExitCode, UserError
from oncebench.record import OBSERVED
from oncebench.record.streams import LineWriter, StreamWriter
from oncebench.sinks.reader import Reader, Rows, now_us
from oncebench.sinks.registry import suite_sinks

POLL_S = 0.1  # the longest wait without rows; SIGTERM is heard after it
PAUSE_S = 0.001  # between two wake-ups: at most 1,000 a second, and no row more than 1 ms late by it
WRITE_S = 0.5  # between two appends to the stream and two status lines
WINDOW_US = 1_000_000  # the status tells of the rows of the last second
LAST_S = 1.0  # rows that still stream in after SIGTERM are taken for no longer than this


@dataclass(frozen=True)
class Config:
    """What to follow and where to write."""

    sink: str
    target: dict[str, Any]
    observed_path: Path
    status_path: Path

    @staticmethod
    def load(path: Path) -> Config:
        """Read CONFIG.json. Raises `UserError` if it is unusable."""
        try:
            item = json.loads(path.read_bytes())
            return Config(
                sink=item["sink"],
                target=dict(item["target"]),
                observed_path=Path(item["observed_path"]),
                status_path=Path(item["status_path"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is no usable observer configuration ({error!r}); it needs sink, target, "
                "observed_path and status_path",
                exit_code=ExitCode.USAGE,
            ) from error


class Status:
    """What the status lines tell: rows so far, latencies of the last second, the newest end event seen."""

    def __init__(self) -> None:
        self.visible = 0
        self.max_ended_at_us = 0
        self._recent: deque[tuple[int, int]] = deque()  # (seen_us, latency µs)

    def add(self, values: list[bytes | None], seen_us: int) -> None:
        """Count rows seen at `seen_us`; a value without a readable ended_at has no latency."""
        self.visible += len(values)
        for value in values:
            ended_at = _ended_at(value)
            if ended_at is not None:
                self._recent.append((seen_us, seen_us - ended_at))
                self.max_ended_at_us = max(self.max_ended_at_us, ended_at)

    def line(self, now_us: int) -> dict[str, Any]:
        """The status line at `now_us`; percentiles are null if no row was seen in the last second."""
        while self._recent and self._recent[0][0] < now_us - WINDOW_US:
            self._recent.popleft()
        recent = Distribution.of(np.array([latency for _, latency in self._recent]) / 1e3)
        return {
            "t_us": now_us,
            "visible": self.visible,
            "p50_ms": recent.p50,
            "p99_ms": recent.p99,
            "max_ended_at_us": self.max_ended_at_us,
        }


def _ended_at(value: bytes | None) -> int | None:
    try:
        ended_at = orjson.loads(value)["ended_at"]  # type: ignore[arg-type]  # None raises, as other bad values do
    except (ValueError, TypeError, LookupError):
        return None
    return ended_at if type(ended_at) is int else None


class _Buffer:
    """Rows seen since the last append to the stream."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer
        self._columns: dict[str, list[Any]] = {name: [] for name in OBSERVED.names}

    def add(self, rows: Rows) -> None:
        seen = [rows.seen_us] * len(rows)
        columns: tuple[list[Any], ...] = (rows.partition, rows.offset, rows.append_ms, seen, rows.key, rows.value)
        for name, column in zip(OBSERVED.names, columns, strict=True):
            self._columns[name] += column

    def write(self) -> None:
        if self._columns["offset"]:
            self._writer.append(self._columns)
            self._columns = {name: [] for name in OBSERVED.names}


def follow(reader: Reader, writer: StreamWriter, lines: LineWriter, stopping: Callable[[], bool]) -> None:
    """Note every row until `stopping`; then take what is there without waiting, and write it."""
    buffer, status = _Buffer(writer), Status()
    write_at = time.monotonic()  # the first status line at once: it says that the observer is there
    end_at: float | None = None
    try:
        while True:
            last = stopping()
            if last and end_at is None:
                end_at = time.monotonic() + LAST_S
            rows = reader.poll(0 if last else POLL_S)
            if len(rows):
                buffer.add(rows)
                status.add(rows.value, rows.seen_us)
            if time.monotonic() >= write_at:
                buffer.write()
                lines.append(status.line(now_us()))
                write_at = time.monotonic() + WRITE_S
            if end_at is not None and (not len(rows) or time.monotonic() > end_at):
                break
            if len(rows):
                time.sleep(PAUSE_S)
    finally:
        buffer.write()
        lines.append(status.line(now_us()))


def _on_signal(handler: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)


def main(arguments: list[str]) -> int:
    """Run the observer; returns the exit code."""
    stopped: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        stopped.append(number)

    # Until it follows, there is nothing to write or to close. An exception will not do: confluent_kafka's
    # constructors take any that comes while they read their settings for a setting that is wrong.
    _on_signal(lambda *_: os._exit(0))
    try:
        if len(arguments) != 1:
            raise UserError("usage: python -m oncebench.observe.observer CONFIG.json", exit_code=ExitCode.USAGE)
        config = Config.load(Path(arguments[0]))
        with closing(suite_sinks()[config.sink].read(config.target)) as reader:
            _on_signal(stop)
            with LineWriter(config.status_path) as lines, StreamWriter(config.observed_path, OBSERVED) as writer:
                follow(reader, writer, lines, lambda: bool(stopped))
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except ReadError as error:
        print(error, file=sys.stderr)
        return ExitCode.ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
