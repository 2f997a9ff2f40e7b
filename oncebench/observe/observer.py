"""The observer: follows a sink during a run and records when each row became visible.

It runs as `python -m oncebench.observe.observer CONFIG.json`. It is a separate process, so neither the pipeline nor the
generator can delay it. CONFIG has `sink`, `target` (as the sink provided it), `observed_path` (Arrow stream) and
`status_path` (JSON lines). With `part` and `parts` it follows one part of the output (`SuiteSink.read_part`), and other
observers follow the others. On SIGTERM or SIGINT it takes the rows that still arrive. It stops when no row has come for
QUIET_S, and LAST_S after a first look at the latest. Then it writes them and exits with 0.

Promise: `seen_us` is the time at which the reader had the data of the row, before any conversion (see
`oncebench.sinks.reader`). How late that is depends on the sink:
- Kafka delivers rows as they arrive. One wake-up takes all of them, so a row is at most `PAUSE_S` late.
- For files and Delta's log the kernel reports changes.
- Other sinks are polled, every 5 ms where a poll is cheap. A row is late by half of that on average.
Finding and reading the row takes additional time: docs/reading_the_tables.md has the figures per sink. Rows that arrive
while earlier rows are being stored are seen afterwards. The observer waits for a server that restarts.

Failure modes: exit code 1 with a message if the topic is missing for 30 s, or if records are gone. A SIGKILL loses the
rows since the last write, half a second at most; the stream is then marked incomplete.
"""

from __future__ import annotations

import json
import math
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

from oncebench.delivery.errors import ReadError
from oncebench.errors import ExitCode, UserError
from oncebench.record import OBSERVED
from oncebench.record.json_lines import LineWriter
from oncebench.record.streams import StreamWriter
from oncebench.sinks.reader import Reader, Rows, now_us
from oncebench.sinks.registry import suite_sinks

POLL_S = 0.1  # the longest wait without rows, and so the longest reaction to SIGTERM
PAUSE_S = 0.001  # between two wake-ups: at most 1,000 per second, and it delays a row by 1 ms at most
WRITE_S = 0.5  # between two appends to the stream and two status lines
WRITE_BYTES = 16_000_000  # of keys and values that wait for an append at most; typical rows reach it after 100,000
WINDOW_US = 1_000_000  # a status line covers the rows of the last second
LAST_S = 1.0  # how long rows that still arrive after SIGTERM are taken
QUIET_S = 0.2  # without a row for this long, none was on its way: Kafka answers a fetch within 10 ms

_NONE = (None, None)


@dataclass(frozen=True)
class Config:
    """The sink to follow, and the files to write."""

    sink: str
    target: dict[str, Any]
    observed_path: Path
    status_path: Path
    part: int = 1
    parts: int = 1

    @staticmethod
    def load(path: Path) -> Config:
        """Reads CONFIG.json. Raises `UserError` if it is unusable."""
        try:
            item = json.loads(path.read_bytes())
            return Config(
                sink=item["sink"],
                target=dict(item["target"]),
                observed_path=Path(item["observed_path"]),
                status_path=Path(item["status_path"]),
                part=int(item.get("part", 1)),
                parts=int(item.get("parts", 1)),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is no usable observer configuration ({error!r}). It needs sink, target, "
                "observed_path and status_path",
                exit_code=ExitCode.USAGE,
            ) from error

    def open(self) -> Reader:
        """Opens the committed reader. Raises `UserError` if the sink cannot be read in parts."""
        sink = suite_sinks()[self.sink]
        if self.parts == 1:
            return sink.read(self.target)
        if sink.read_part is None:
            raise UserError(f"sink {self.sink} can be read by one observer only", exit_code=ExitCode.USAGE)
        return sink.read_part(self.target, self.part, self.parts)


class Status:
    """The content of status lines.

    They have the rows so far, the time of the last one, the latencies of the last second and the newest end event.
    """

    def __init__(self) -> None:
        self.visible = 0
        self.last_row_us = 0
        self.max_ended_at_us = 0
        self._recent: deque[tuple[int, int]] = deque()  # (seen_us, latency µs)

    def add(self, values: list[bytes | None], seen_us: int) -> None:
        """Counts rows seen at `seen_us`. A value without a readable ended_at has no latency."""
        self.visible += len(values)
        self.last_row_us = seen_us if values else self.last_row_us
        for value in values:
            ended_at = _ended_at(value)
            if ended_at is not None:
                self._recent.append((seen_us, seen_us - ended_at))
                self.max_ended_at_us = max(self.max_ended_at_us, ended_at)

    def line(self, now_us: int) -> dict[str, Any]:
        """The status line at `now_us`. Percentiles are null if the last second had no row.

        A percentile is a measured value (nearest rank).
        """
        while self._recent and self._recent[0][0] < now_us - WINDOW_US:
            self._recent.popleft()
        latencies_ms = np.array([latency for _, latency in self._recent]) / 1e3
        p50, p99 = np.quantile(latencies_ms, (0.50, 0.99), method="inverted_cdf").tolist() if self._recent else _NONE
        return {
            "t_us": now_us,
            "visible": self.visible,
            "last_row_us": self.last_row_us,
            "p50_ms": p50,
            "p99_ms": p99,
            "max_ended_at_us": self.max_ended_at_us,
        }


def _ended_at(value: bytes | None) -> int | None:
    try:
        ended_at = orjson.loads(value)["ended_at"]  # type: ignore[arg-type]  # None raises, as other bad values do
    except (ValueError, TypeError, LookupError):
        return None
    return ended_at if type(ended_at) is int else None


class _Buffer:
    """Rows that are not yet in the stream."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer
        self._columns: dict[str, list[Any]] = {name: [] for name in OBSERVED.names}
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether the rows take more memory than they should."""
        return self._bytes >= WRITE_BYTES

    def add(self, rows: Rows) -> None:
        seen = [rows.seen_us] * len(rows)
        columns: tuple[list[Any], ...] = (rows.partition, rows.offset, rows.append_ms, seen, rows.key, rows.value)
        for name, column in zip(OBSERVED.names, columns, strict=True):
            self._columns[name] += column
        self._bytes += sum(len(content) for content in (*rows.key, *rows.value) if content is not None)

    def write(self) -> None:
        if self._columns["offset"]:
            self._writer.append(self._columns)
            self._columns = {name: [] for name in OBSERVED.names}
            self._bytes = 0


def follow(reader: Reader, writer: StreamWriter, lines: LineWriter, stopping: Callable[[], bool]) -> None:
    """Records every row until `stopping`, then the rows that still arrive (see the module)."""
    buffer, status = _Buffer(writer), Status()
    write_at = time.monotonic()  # the first status line comes at once, as a sign that the observer runs
    stop_at = end_at = math.inf
    try:
        while True:
            last = stopping()
            if last and stop_at == math.inf:
                # A reader that reads seldom, because its calls are slow, reads once more now.
                rows = reader.poll(0)
                stop_at, end_at = time.monotonic() + LAST_S, time.monotonic() + QUIET_S
            else:
                rows = reader.poll(QUIET_S if last else POLL_S)
            if len(rows):
                end_at = time.monotonic() + QUIET_S if last else math.inf
                buffer.add(rows)
                status.add(rows.value, rows.seen_us)
                if buffer.full:
                    buffer.write()
            if time.monotonic() >= write_at:
                buffer.write()
                lines.append(status.line(now_us()))
                write_at = time.monotonic() + WRITE_S
            if time.monotonic() >= min(stop_at, end_at):
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
    """Runs the observer and returns the exit code."""
    stopped: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        stopped.append(number)

    # Before the first row there is nothing to write or to close, so a signal ends the process at once. An exception
    # would not work: confluent_kafka's constructors report any exception as a wrong setting.
    _on_signal(lambda *_: os._exit(0))
    try:
        if len(arguments) != 1:
            raise UserError("usage: python -m oncebench.observe.observer CONFIG.json", exit_code=ExitCode.USAGE)
        config = Config.load(Path(arguments[0]))
        with closing(config.open()) as reader:
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
